"""One file a finding; the file's name is the finding's."""
