"""What kernels on images share: geometry, epilogues, pools."""
