/* SPDX-License-Identifier: Apache-2.0 */
/* Does a plan fit in memory? From C. Usage: fits SCENARIO; exit 0: it does, 1: it does not. */
#include <rehearse.h>
#include <stdio.h>

int main(int argc, char** argv) {
  const char* words[] = {"simulate", argc > 1 ? argv[1] : "3d-8-gpus", "--require-fit"};
  rehearse_answer* answer = rehearse_ask(3, words, NULL);
  const int code = rehearse_code(answer);
  fputs(rehearse_errors(answer), stderr);
  if (code == REHEARSE_DONE) puts("fits");
  if (code == REHEARSE_NO) puts("does not fit");
  rehearse_free(answer);
  return code;
}
