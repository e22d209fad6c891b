"""headrace.horovod: the names of `horovod.tensorflow`, over Headrace's collectives."""
