/* SPDX-License-Identifier: Apache-2.0 */
/* Rehearse from C, and from C++ by rehearse.hpp: the commands that answer, asked in the caller's
   process. What is asked is the command line, what comes back is what the command prints: the
   contracts of `rehearse COMMAND --help` and of --json, which only grow. Commands that act on the
   machine (run, view, calibrate, serve) are refused.

   Nothing here ends the process, writes to its streams, touches its signals or its locale. What is
   wrong is an answer. Every function may be called from any thread; an answer belongs to one thread
   at a time. */
#ifndef REHEARSE_H
#define REHEARSE_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rehearse_answer rehearse_answer;

/* What becomes of a command: the exit codes of docs/commands.md. */
enum {
  REHEARSE_DONE = 0,
  REHEARSE_NO = 1,        /* the answer is no: it does not fit, it is not sound */
  REHEARSE_BAD_INPUT = 2, /* bad usage or bad input */
  REHEARSE_FAILED = 3     /* it failed here: no memory, a full disk */
};

/* Performs `rehearse ARGUMENTS...`. `input` is what a `-` among them names (a scenario as JSON);
   NULL: nothing. Never NULL; to be given to rehearse_free. */
rehearse_answer* rehearse_ask(int count, const char* const* arguments, const char* input);
int rehearse_code(const rehearse_answer* answer);
/* What the command prints on standard output (UTF-8; with --json one document) and on standard
   error, a line each. They live as long as the answer. */
const char* rehearse_text(const rehearse_answer* answer);
const char* rehearse_errors(const rehearse_answer* answer);
void rehearse_free(rehearse_answer* answer); /* NULL: nothing */

const char* rehearse_version(void);

#ifdef __cplusplus
}
#endif

#endif
