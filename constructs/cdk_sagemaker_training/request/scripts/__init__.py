"""What is read of training scripts, and what is wrong with them."""
