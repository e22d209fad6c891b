"""Cut a placed step into one partition for each device, joined by Sends and Recvs."""
