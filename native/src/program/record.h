// Steps of a program as commands, for one set of sizes. Private to the core.
#ifndef TW_PROGRAM_RECORD_H_
#define TW_PROGRAM_RECORD_H_

#include "bound.h"

// Records all steps, unless there is nothing to compute: places every storage, fills `list` and what goes with it.
int tw_record_program(tw_bound_t* bound, int is_empty);

// Records a stretch, whose transients have their places in `now`.
int tw_record_stretch(tw_bound_t* bound, const tw_bound_t* now, const tw_stretch_t* stretch);

#endif  // TW_PROGRAM_RECORD_H_
