"""neap inside other people's training loops: lightning, transformers. Each imports its framework when it is imported."""
