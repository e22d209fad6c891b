"""The vocabulary in which ops tell the compiler what they compute: rules, programs, anchors."""
