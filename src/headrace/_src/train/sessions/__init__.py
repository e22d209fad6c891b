"""Sessions that train: coordinators, hooks, monitored sessions, supervisors."""
