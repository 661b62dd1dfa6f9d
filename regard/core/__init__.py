"""What everything else stands on: the legend of shapes and the errors people see."""
