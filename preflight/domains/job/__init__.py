"""What is concluded from the record of a rehearsed command: who holds up a hang, which exit was the
first, whether calls of the ranks match, whether memory grows. Serves the checks of the group job.
"""
