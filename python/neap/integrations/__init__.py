"""neap inside other people's tools: lightning, transformers, trackers (TensorBoard, W&B, MLflow, accelerate), optuna, jupyter. Each
imports its framework when it is imported or first needed."""
