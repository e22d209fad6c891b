"""Which nodes become a cluster, and the cluster as a kernel of the interpreter."""
