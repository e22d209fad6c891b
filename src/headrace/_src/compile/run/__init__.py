"""Running a plan: the team of threads, the driver, choosing among kernels."""
