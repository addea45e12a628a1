"""Commands of the pipeline, which only a checkout has: `tsfmscope` adds them to those of the library."""

# Command -> module and function, and its line of `tsfmscope --help`.
COMMANDS = {
    "sql": ("stages.commands.sql:sql", "Run SQL on the results."),
    "tables": ("stages.commands.tables:tables", "List the tables, views and columns of the results."),
    "report": ("stages.commands.report:report", "Print where the results and their page are."),
    "save-results": ("stages.commands.save_results:save_results", "Save the results as a folder of Parquet files."),
    "new": ("stages.commands.new_study:app", "Add a block to params.yaml."),
    "plan": ("stages.commands.plan:plan", "Print the jobs of a run, before it."),
    "profile": ("stages.commands.plan:profile", "Copy a profile over params.yaml."),
    "status": ("stages.commands.status:status", "Print the progress of a run."),
    "failures": ("stages.commands.failures:failures", "Print the failed jobs."),
    "retry": ("stages.commands.failures:retry", "Run the failed jobs again."),
    "corpus": ("stages.commands.corpus:corpus", "Make a corpus of training series."),
    "commit-checkpoints": (
        "stages.commands.commit_checkpoints:commit_checkpoints",
        "Copy pretrained checkpoints to a folder kept by git.",
    ),
    "doctor": ("stages.commands.doctor:doctor", "Check what is installed, and print how to fix it."),
}
