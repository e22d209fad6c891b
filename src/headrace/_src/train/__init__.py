"""Training: optimizers, savers, monitored sessions, and threads that feed queues."""
