"""The work: arrays, models and tables in, numbers, tables and pictures out. Holds no state; knows no store."""
