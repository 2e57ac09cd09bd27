"""What the command line is made of: arguments, files in and out, and pictures of layouts."""
