"""Command `tsfmscope`, for a user's own models and data; each subcommand calls functions of the stages."""
