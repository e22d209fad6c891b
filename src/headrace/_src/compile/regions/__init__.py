"""From a cluster's nodes to groups: layouts, fusion, order."""
