// SPDX-License-Identifier: Apache-2.0
// rehearse serve: a Model Context Protocol server on standard input and output, one message a line.
//
// One thread that waits for whichever comes first: a line, room for an answer, something that a
// call wrote, a call's deadline. What is asked while as many calls run as there are cores waits its
// turn; while too much waits or too much was not taken, nothing more is read.
#include "cli/serve/serve.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <deque>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/serve/call.h"
#include "cli/serve/protocol.h"
#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"

namespace rehearse::cli {
namespace {

constexpr std::size_t kMostLine = std::size_t{8} << 20;      // [B] of a message
constexpr std::size_t kMostUntaken = std::size_t{64} << 20;  // [B] of answers that nobody takes
constexpr std::size_t kMostWaiting = 256;                    // calls

struct ServeOptions {
  double timeout = 300;  // [s] of one call
};

class Server {
 public:
  Server(Json scenario, const ServeOptions& options)
      : protocol_(std::move(scenario)),
        at_most_(std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(options.timeout))),
        most_running_(std::clamp(std::thread::hardware_concurrency(), 1u, 16u)) {}

  // Until standard input has ended and everything is answered. Returns the exit code.
  int run() {
    while (open_ || !waiting_.empty() || !running_.empty() || !answers_.empty()) {
      start_calls();
      if (!wait()) return kRunFailed;
      finish_calls();
    }
    return kDone;
  }

 private:
  bool reads() const {
    return open_ && waiting_.size() < kMostWaiting && answers_.size() < kMostUntaken;
  }

  bool wait() {
    std::vector<pollfd> polled;
    polled.push_back({.fd = reads() ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0});
    polled.push_back(
        {.fd = answers_.empty() ? -1 : STDOUT_FILENO, .events = POLLOUT, .revents = 0});
    Clock::time_point next = Clock::time_point::max();
    for (const auto& call : running_) {
      for (const int descriptor : call->descriptors()) {
        polled.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
      }
      next = std::min(next, call->deadline());
    }
    int at_most = -1;
    if (!running_.empty()) {
      const auto rest =
          std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()).count() + 1;
      at_most = static_cast<int>(std::clamp<std::int64_t>(rest, 0, 1000));
    }
    if (poll(polled.data(), polled.size(), at_most) < 0) return errno == EINTR;
    if (polled[0].revents != 0) take_input();
    if (polled[1].revents != 0 && !give_answers()) return false;
    for (std::size_t i = 0; i < running_.size(); ++i) {
      for (std::size_t which = 0; which < 2; ++which) {
        if (polled[2 + 2 * i + which].revents != 0) running_[i]->take(which);
      }
      if (Clock::now() >= running_[i]->deadline()) running_[i]->stop_late();
    }
    for (const Json& id : cancelled_) forget(id);
    cancelled_.clear();
    return true;
  }

  void take_input() {
    std::array<char, 1 << 16> piece;
    const ssize_t count = read(STDIN_FILENO, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) return;
    if (count <= 0) {
      if (!line_.empty()) take_line();  // the last one may lack its end
      open_ = false;
      return;
    }
    std::string_view rest(piece.data(), static_cast<std::size_t>(count));
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      line_.append(rest.substr(0, end));
      if (line_.size() > kMostLine) {
        too_long_ = true;
        line_.clear();
      }
      if (end == std::string_view::npos) return;
      rest.remove_prefix(end + 1);
      take_line();
    }
  }

  void take_line() {
    std::string line;
    std::swap(line, line_);
    if (too_long_) {
      too_long_ = false;
      answers_ += fault_line({.code = RpcError::InvalidRequest,
                              .message = fmt::format("a message of more than {} MB; name a file "
                                                     "instead of giving the document",
                                                     kMostLine >> 20)});
      return;
    }
    if (line.find_first_not_of(" \t\r") == std::string::npos) return;
    Reaction reaction = protocol_.react(line);
    if (auto* answer = std::get_if<std::string>(&reaction)) answers_ += *answer;
    if (auto* cancel = std::get_if<Cancelled>(&reaction)) cancelled_.push_back(cancel->id);
    if (auto* call = std::get_if<ToolCall>(&reaction)) {
      if (!under_way(call->id)) {
        waiting_.push_back(std::move(*call));
      } else {
        answers_ += fault_line({.code = RpcError::InvalidRequest,
                                .message = "a request with this id is under way",
                                .id = call->id});
      }
    }
  }

  bool under_way(const Json& id) const {
    const std::string text = id.dump();
    return std::ranges::any_of(waiting_, [&](const auto& one) { return one.id.dump() == text; }) ||
           std::ranges::any_of(running_, [&](const auto& one) { return one->id().dump() == text; });
  }

  // A call that nobody wants any more is not answered.
  void forget(const Json& id) {
    const std::string text = id.dump();
    std::erase_if(waiting_, [&](const auto& one) { return one.id.dump() == text; });
    std::erase_if(running_, [&](const auto& one) { return one->id().dump() == text; });
  }

  // A pipe that can be written to takes that much at once.
  bool give_answers() {
    const ssize_t count = write(STDOUT_FILENO, answers_.data() + taken_,
                                std::min<std::size_t>(answers_.size() - taken_, PIPE_BUF));
    if (count < 0) {
      if (errno == EINTR || errno == EAGAIN) return true;
      print_error("serve: standard output takes no answers any more");
      return false;
    }
    taken_ += static_cast<std::size_t>(count);
    if (taken_ == answers_.size() || taken_ > kMostLine) {
      answers_.erase(0, taken_);
      taken_ = 0;
    }
    return true;
  }

  void start_calls() {
    while (!waiting_.empty() && running_.size() < most_running_) {
      ToolCall next = std::move(waiting_.front());
      waiting_.pop_front();
      Result<std::unique_ptr<Call>> started =
          Call::start(next.id, *next.tool, std::move(next.line), at_most_, next.complete);
      if (started) {
        running_.push_back(std::move(started).value());
      } else {
        answers_ += fault_line(
            {.code = RpcError::Internal, .message = started.error().message, .id = next.id});
      }
    }
  }

  void finish_calls() {
    for (const auto& call : running_) {
      if (call->ended()) answers_ += result_line(call->id(), call->result());
    }
    std::erase_if(running_, [](const auto& call) { return call->ended(); });
  }

  const Protocol protocol_;
  const Clock::duration at_most_;
  const std::size_t most_running_;
  bool open_ = true, too_long_ = false;
  std::string line_, answers_;
  std::size_t taken_ = 0;  // of answers_
  std::deque<ToolCall> waiting_;
  std::vector<std::unique_ptr<Call>> running_;
  std::vector<Json> cancelled_;
};

int serve(const ServeOptions& options) {
  const Result<JsonValue> schema = read_json(shipped_directory() + "/schema/scenario.json");
  if (!schema) return fail(schema.error().message);
  if (isatty(STDIN_FILENO) == 1) {
    print_error(
        "serve: a server for agents, which speaks the Model Context Protocol; type a message a "
        "line, or end it by Ctrl-D");
  }
  return Server(Json(schema.value()), options).run();
}

}  // namespace

Command serve_command() {
  const auto o = std::make_shared<ServeOptions>();
  Command command{"serve", "a Model Context Protocol server on standard input and output"};
  command.options = {
      shows_default({"--timeout", &o->timeout, "seconds that one call may take", Number{1, 86400}}),
  };
  command.footer =
      "Example: echo '{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/call\", \"params\": "
      "{\"name\": \"list\", \"arguments\": {\"kind\": \"models\"}}}' | rehearse serve";
  command.perform = [o](const Given&) { return serve(*o); };
  return command;
}

}  // namespace rehearse::cli
