// SPDX-License-Identifier: Apache-2.0
// One call of a tool: its command, performed by a process of its own, so that whatever becomes of
// it (a crash, a hang, all the memory) is an answer and not the server's end.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "cli/serve/tools.h"
#include "schedules/base/json_document.h"

namespace rehearse::cli {

using Clock = std::chrono::steady_clock;

class Call {
 public:
  // Starts it. Error: no process, pipe or file could be made.
  static Result<std::unique_ptr<Call>> start(const Json& id, const Tool& tool, CommandLine line,
                                             Clock::duration at_most,
                                             std::function<Json(Json)> complete);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const Json& id() const { return id_; }
  // Where it writes: to be polled; -1: it has closed that one.
  const std::array<int, 2>& descriptors() const { return descriptors_; }
  Clock::time_point deadline() const { return deadline_; }
  // Takes what it wrote there; call it where that can be read.
  void take(std::size_t which);
  bool ended() const { return descriptors_[0] < 0 && descriptors_[1] < 0; }
  void stop_late();  // at its deadline
  // The result for tools/call. REQUIRES: ended.
  Json result();

 private:
  Call() = default;
  Json answer() const;

  Json id_;
  std::string tool_, folder_;  // of its documents; empty: none
  std::function<Json(Json)> complete_;
  pid_t process_ = -1;
  std::array<int, 2> descriptors_{-1, -1};  // standard output, standard error
  std::array<std::string, 2> written_;
  Clock::time_point deadline_;
  std::string stopped_;  // why; empty: it was not
  int status_ = 0;
};

// A result that says what is wrong, for the model that asked.
Json tool_error(const std::string& message);

}  // namespace rehearse::cli
