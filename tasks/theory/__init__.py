"""The theorems as numerical experiments. Nothing yet."""
