"""Training by several replicas of a model: synchronously, with backup workers, or by averages."""
