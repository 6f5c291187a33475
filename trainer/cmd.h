/* Commands: argv -> work. Each answers 0, or -1 with the message and the exit code in err; what is
 * not an error but ends with another code (75, 130) uses the same way. argv[0] is the command. */
#ifndef BL_CMD_H
#define BL_CMD_H

#include "base/error.h"

int bl_cmd_train(int argc, char **argv, struct bl_error *err);
int bl_cmd_check(int argc, char **argv, struct bl_error *err);
int bl_cmd_plugin(int argc, char **argv, struct bl_error *err);
int bl_cmd_plugins(int argc, char **argv, struct bl_error *err);
int bl_cmd_report(int argc, char **argv, struct bl_error *err);
int bl_cmd_reduce(int argc, char **argv, struct bl_error *err);
int bl_cmd_data(int argc, char **argv, struct bl_error *err);
int bl_cmd_data_info(int argc, char **argv, struct bl_error *err);
int bl_cmd_data_pack(int argc, char **argv, struct bl_error *err);
int bl_cmd_data_verify(int argc, char **argv, struct bl_error *err);
int bl_cmd_doctor(int argc, char **argv, struct bl_error *err);
int bl_cmd_weights(int argc, char **argv, struct bl_error *err);

#endif
