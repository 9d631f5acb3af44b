"""What a thousand points take by engine, and whether engines and kills leave a trace."""
