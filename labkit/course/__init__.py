"""The ground floor, used by every other room: syllabus, cells, answers, reports, languages."""
