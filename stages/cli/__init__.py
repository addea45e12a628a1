"""`tsfm-lens`: the command for one's own models and data; each of its commands is thin over functions of the stages."""
