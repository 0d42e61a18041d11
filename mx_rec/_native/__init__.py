"""The border to the C++ core: loading the libraries, and typed wrappers over their functions and ops."""
