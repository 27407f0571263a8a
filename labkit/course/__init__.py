"""What every other room uses: the syllabus, cells and answers, reports, languages."""
