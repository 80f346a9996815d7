"""The doctor: evidence in; which failure, the proof and the prescription out."""
