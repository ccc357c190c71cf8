"""What analyses share; none of these files is one."""
