"""Taking a cut back: handler methods folded into the class again, byte for byte."""
