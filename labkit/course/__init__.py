"""What everything else stands on: the syllabus, what a cell is, what a report is."""
