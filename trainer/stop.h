/* Signals that ask a run to end: SIGINT, SIGTERM, SIGUSR1. */
#ifndef BL_STOP_H
#define BL_STOP_H

/* From here on none of them ends the process in the middle of its work. Until bl_stop_defer(1) and
 * after bl_stop_defer(0) they end it at once, with one line and the exit code of an early stop: for
 * loading, which can take minutes and has nothing that is worth finishing. While deferred the first
 * one is only remembered; a second SIGINT ends the process at once. */
void bl_stop_watch(void);
void bl_stop_defer(int on);

/* The signal that was remembered, 0 when there was none. */
int bl_stop_signal(void);
/* "SIGTERM"; the exit code that belongs to it. */
const char *bl_stop_name(int number);
int bl_stop_code(int number);

#endif
