"""Settings of every test session."""

import gc

# Imports of torch and transformers make millions of objects that live to the end; as in `tsfmscope` itself.
gc.set_threshold(200_000)
