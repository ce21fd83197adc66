"""What AWS offers, as data with source and date, for the command line and for the constructs."""
