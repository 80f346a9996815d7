"""What is measured of a policy on problems held out."""
