// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/call.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>

#include "cli/commands.h"
#include "schedules/base/bytes/whole_file.h"

namespace rehearse::cli {
namespace {

constexpr std::size_t kMostAnswer = std::size_t{64} << 20;  // [B]

Error system_error(const std::string& what) {
  return Error{.message = what + ": " + std::strerror(errno), .machine = true};
}

// Writes the documents into a folder of their own and names them in the words.
Result<std::string> write_documents(CommandLine& line) {
  if (line.documents.empty()) return std::string();
  std::error_code fault;
  const std::filesystem::path place = std::filesystem::temp_directory_path(fault);
  std::string folder = (place / "rehearse-serve-XXXXXX").string();
  if (fault || mkdtemp(folder.data()) == nullptr) return system_error("a folder for documents");
  for (std::size_t i = 0; i < line.documents.size(); ++i) {
    const Document& document = line.documents[i];
    // Several of one argument have names of their own.
    const std::string number = i == 0 ? "" : std::to_string(i + 1);
    const std::string path = folder + "/" + document.name + number + ".json";
    const Result<> written = write_whole(path, document.text + "\n");
    if (!written) return written.error();
    line.words[document.word] += path;
  }
  return folder;
}

// The command, in the new process.
[[noreturn]] void perform_command(const Tool& tool, std::vector<std::string>& words) {
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  // Where memory ends, the system is to take it from here.
  if (std::FILE* score = std::fopen("/proc/self/oom_score_adj", "w")) {
    std::fputs("1000", score);
    std::fclose(score);
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  int code = kRunFailed;
  try {
    code = perform(static_cast<int>(argv.size()), argv.data(), "", {tool.make()});
  } catch (...) {
    std::terminate();  // main's handler says what was thrown
  }
  std::fflush(stdout);
  std::_Exit(code);
}

void remove_all(std::string& text, const std::string& what) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) {
    text.erase(at, what.size());
  }
}

// What a command says on standard error, without its name.
std::string said(std::string text) {
  remove_all(text, "rehearse: ");
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

Json text_content(const std::string& text) {
  return {{"type", "text"}, {"text", text}};
}

}  // namespace

Json tool_error(const std::string& message) {
  return {{"content", Json::array({text_content(message)})}, {"isError", true}};
}

Result<std::unique_ptr<Call>> Call::start(const Json& id, const Tool& tool, CommandLine line,
                                          Clock::duration at_most,
                                          std::function<Json(Json)> complete) {
  std::unique_ptr<Call> call(new Call);
  call->id_ = id;
  call->tool_ = tool.name;
  call->complete_ = std::move(complete);
  Result<std::string> folder = write_documents(line);
  if (!folder) return folder.error();
  call->folder_ = folder.value();
  std::array<std::array<int, 2>, 2> pipes{};
  for (std::size_t i = 0; i < 2; ++i) {
    if (pipe2(pipes[i].data(), O_CLOEXEC) != 0) return system_error("a pipe");
    call->descriptors_[i] = pipes[i][0];
  }
  const pid_t server = getpid();
  call->process_ = fork();
  if (call->process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // no longer than the server
    if (getppid() != server) std::_Exit(kRunFailed);
    dup2(pipes[0][1], STDOUT_FILENO);
    dup2(pipes[1][1], STDERR_FILENO);
    for (const auto& pipe : pipes) {
      close(pipe[0]);
      close(pipe[1]);
    }
    perform_command(tool, line.words);
  }
  const int problem = errno;
  for (const auto& pipe : pipes) close(pipe[1]);
  errno = problem;
  if (call->process_ < 0) return system_error("a process");
  call->deadline_ = Clock::now() + at_most;
  return call;
}

Call::~Call() {
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  for (const int descriptor : descriptors_) {
    if (descriptor >= 0) close(descriptor);
  }
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

void Call::take(std::size_t which) {
  std::array<char, 1 << 16> piece;
  const ssize_t count = read(descriptors_[which], piece.data(), piece.size());
  if (count < 0 && errno == EINTR) return;
  if (count > 0) {
    std::string& text = written_[which];
    text.append(piece.data(), static_cast<std::size_t>(count));
    if (text.size() <= kMostAnswer) return;
    stopped_ = fmt::format("the answer is larger than {} MB", kMostAnswer >> 20);
    kill(process_, SIGKILL);
    text.clear();
    return;
  }
  close(descriptors_[which]);
  descriptors_[which] = -1;
}

void Call::stop_late() {
  if (stopped_.empty()) {
    stopped_ =
        "it took longer than serve's --timeout allows: ask for less (fewer keys left open, "
        "fewer clusters or numbers of GPUs), or start the server with more";
  }
  kill(process_, SIGKILL);
}

Json Call::result() {
  waitpid(process_, &status_, 0);
  process_ = -1;
  return complete_(answer());
}

Json Call::answer() const {
  std::string answer = written_[0], words = said(written_[1]);
  for (std::string* text : {&answer, &words}) {  // documents are named by their arguments
    if (!folder_.empty()) remove_all(*text, folder_ + "/");
  }
  if (!stopped_.empty()) return tool_error(tool_ + ": " + stopped_);
  if (WIFSIGNALED(status_)) {
    return tool_error(fmt::format("{}: the command was ended by signal {} ({}); please report it",
                                  tool_, WTERMSIG(status_), strsignal(WTERMSIG(status_))));
  }
  if (answer.empty() || WEXITSTATUS(status_) > kNo) {
    return tool_error(words.empty() ? tool_ + ": no answer; please report it" : words);
  }
  const Result<JsonValue> read = parse_json(answer, tool_);
  if (!read) return tool_error(tool_ + ": the answer is no JSON; please report it");
  const Json document(read.value());
  Json content = Json::array({text_content(document.dump())});
  if (!words.empty()) content.push_back(text_content(words));
  Json result{{"content", content}, {"isError", false}};
  if (document.is_object()) result["structuredContent"] = document;
  return result;
}

}  // namespace rehearse::cli
