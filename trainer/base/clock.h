#ifndef BL_BASE_CLOCK_H
#define BL_BASE_CLOCK_H

double bl_clock(void);      /* seconds, monotonic */
double bl_clock_wall(void); /* seconds since the epoch */

#endif
