// SPDX-License-Identifier: Apache-2.0
#include "exec/run/processes.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "exec/store/secret.h"
#include "exec/store/wire.h"
#include "schedules/ranks/unfold.h"

namespace rehearse::exec {
namespace {

// That a process may take to find its own lines [s]: trials of kernels, among which cuDNN compiles
// for a second or more per shape. --timeout is an op's.
constexpr double kTrials = 1800;

// What a process hands over: when its last step began, the seconds of its steps, its ranks' times.
std::string result_bytes(const Interpreter& process, const Measurement& m,
                         std::int64_t clock_offset) {
  WireWriter out;
  out.number(process.began_ns() + clock_offset);
  const ProcessMemory memory = process_memory();
  out.number(memory.peak).number(memory.resident).number(memory.files).number(memory.shared);
  out.number(memory.machine);
  out.number(static_cast<std::uint32_t>(m.steps.size()));
  for (const StepReport& step : m.steps) out.number(static_cast<std::int64_t>(step.seconds * 1e9));
  for (std::size_t i = 0; i < process.start().size(); ++i)
    out.number(process.start()[i].value).number(process.end()[i].value);
  const std::vector<HeldExchange> held = process.exchanged();
  out.number(static_cast<std::uint32_t>(held.size()));
  for (const HeldExchange& one : held) {
    out.text(one.name).number(one.rank).text(one.before).text(one.after);
  }
  const std::vector<CollectiveCount> met = process.collectives();
  out.number(static_cast<std::uint32_t>(met.size()));
  for (const CollectiveCount& one : met) {
    out.number(static_cast<std::uint32_t>(one.group)).number(static_cast<std::uint32_t>(one.kind));
    out.number(one.ranks).number(one.count).number(one.bytes);
  }
  return out.take();
}

// The collectives that a process counted; none: no such groups or collectives.
std::optional<std::vector<CollectiveCount>> read_collectives(WireReader& in) {
  std::vector<CollectiveCount> met;
  for (auto left = in.number<std::uint32_t>(); left > 0 && in.good(); --left) {
    const auto group = in.number<std::uint32_t>(), kind = in.number<std::uint32_t>();
    if (group >= kNumGroupKinds || kind >= kNumOpKinds) return std::nullopt;
    CollectiveCount& one = met.emplace_back(
        CollectiveCount{.group = static_cast<GroupKind>(group), .kind = static_cast<OpKind>(kind)});
    one.ranks = in.number<std::int32_t>();
    one.count = in.number<std::int64_t>();
    one.bytes = in.number<std::int64_t>();
  }
  return met;
}

// All processes' results, each with the times of its ranks in order, moved to one clock whose zero
// is the moment when the first process began.
bool merge(const std::vector<std::string>& results, Measurement& m) {
  std::int64_t zero = 0;
  for (std::size_t p = 0; p < results.size(); ++p) {
    const auto began = WireReader(results[p]).number<std::int64_t>();
    zero = p == 0 ? began : std::min(zero, began);
  }
  const std::vector<RankClass> row_of_rank = rows_of_ranks(m.scenario->plan, *m.schedule);
  const std::size_t each = row_of_rank.size() / results.size();
  m.start.clear();
  m.end.clear();
  for (std::size_t p = 0; p < results.size(); ++p) {
    WireReader in(results[p]);
    const std::int64_t shift = in.number<std::int64_t>() - zero;
    ProcessMemory memory;
    for (std::int64_t* to :
         {&memory.peak, &memory.resident, &memory.files, &memory.shared, &memory.machine})
      *to = in.number<std::int64_t>();
    m.memory.push_back(memory);
    const auto steps = in.number<std::uint32_t>();
    if (steps != m.steps.size()) return false;
    for (StepReport& step : m.steps) {
      const double seconds = static_cast<double>(in.number<std::int64_t>()) * 1e-9;
      if (seconds <= step.seconds) continue;
      step.tokens_per_s *= step.seconds / seconds;
      step.seconds = seconds;
    }
    const auto own = row_of_rank.begin() + static_cast<std::ptrdiff_t>(p * each);
    for (std::int64_t left =
             ops_of_ranks(*m.schedule, {own, own + static_cast<std::ptrdiff_t>(each)});
         left > 0 && in.good(); --left) {
      m.start.push_back({in.number<std::int64_t>() + shift});
      m.end.push_back({in.number<std::int64_t>() + shift});
    }
    for (auto left = in.number<std::uint32_t>(); left > 0 && in.good(); --left) {
      HeldExchange& held = m.exchanges.emplace_back();
      held.name = in.text();
      held.rank = in.number<std::int32_t>();
      held.before = in.text();
      held.after = in.text();
    }
    const auto met = read_collectives(in);
    if (!met || !in.done()) return false;
    m.collectives = busiest(std::move(m.collectives), *met);
  }
  return true;
}

}  // namespace

std::string first_lines(std::span<const std::string> all) {
  std::set<std::string, std::less<>> known;
  std::string lines;
  for (const std::string& text : all) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      if (known.insert(line.substr(0, line.find('='))).second) lines += line + '\n';
    }
  }
  return lines;
}

bool shared_memory_allowed() {
  const char* value = std::getenv("REHEARSE_NEIGHBORS");
  return value == nullptr || std::string_view(value) != "0";
}

Processes::~Processes() {
  if (group_) group_->on_end(nullptr);
  communicator_.reset();
}

Result<> Processes::join(const LaunchEnvironment& launch, const Plan& plan,
                         const Schedule& schedule, const ProcessOptions& options) {
  Result<std::string> secret = secret_of_run(std::getenv, launch.one_host);
  if (!secret) return secret.error();
  LaunchEnvironment known = launch;
  known.secret = std::move(secret).value();
  if (launch.process == 0 && !launch.launched() && known.secret.size() < kSafeSecret) {
    say_("run: REHEARSE_SECRET: " + std::to_string(known.secret.size()) +
         " characters can be guessed; 16 or more are safe");
  }
  timeout_s_ = options.timeout_s;
  Result<std::unique_ptr<ProcessGroup>> group =
      ProcessGroup::join(known, {.plan = &plan,
                                 .schedule = &schedule,
                                 .version = options.version,
                                 .steps = options.steps,
                                 .timeout_s = options.timeout_s,
                                 .flight = options.flight,
                                 .print_error = say_});
  if (!group) {
    others_fault_ = group.error().infeasible;
    return Error{.message = group.error().message, .machine = true};
  }
  group_ = std::move(group).value();
  observer_.emplace(group_->board());
  Result<std::unique_ptr<ProcessCommunicator>> connected =
      connect_gloo({.process = launch.process,
                    .processes = launch.processes,
                    .ranks = plan.gpus(),
                    .address = group_->address(),
                    .secret = known.secret,
                    .timeout_s = options.timeout_s,
                    .shared_memory = shared_memory_allowed(),
                    .throttle = options.throttle},
                   group_->store());
  if (!connected) {
    others_fault_ = true;  // who does not come is judged by who watches
    return Error{.message = connected.error().message, .machine = true};
  }
  communicator_ = std::move(connected).value();
  group_->on_end([to = communicator_.get()](const std::string& why) { to->end(why); });
  return {};
}

Result<int> Processes::largest(int own) {
  if (!communicator_) return own;
  const Result<double> all = communicator_->largest(own);
  if (!all) return all.error();
  return static_cast<int>(all.value());
}

Result<> Processes::agree(const Result<>& own) {
  const Result<int> all = largest(own ? 0 : 1);
  if (!own) return own;
  if (!all) return all.error();
  if (all.value() == 0) return {};
  others_fault_ = true;
  return Error{"another process failed"};
}

Result<std::string> Processes::share(const std::string& own) {
  return share(own, timeout_s_);
}

Result<std::string> Processes::share(const std::string& own, double timeout_s) {
  if (!group_) return own;
  const std::string key = "shared/" + std::to_string(shared_++);
  if (first()) {
    if (const Result<> set = group_->store().set(key, own); !set) return set.error();
    return own;
  }
  return group_->store().get(key, timeout_s);
}

Result<std::string> Processes::first_of_each(const std::string& own) {
  if (!group_) return own;
  const double limit = std::max(timeout_s_, kTrials);
  const std::string key = "lines/" + std::to_string(shared_);  // share() moves it on
  if (!first()) {
    const Result<> set = group_->store().set(key + '/' + std::to_string(number()), own);
    return set ? share({}, limit) : Result<std::string>(set.error());
  }
  std::vector<std::string> all{own};
  for (std::int32_t p = 1; p < count(); ++p) {
    Result<std::string> lines = group_->store().get(key + '/' + std::to_string(p), limit);
    if (!lines) return lines.error();
    all.push_back(std::move(lines).value());
  }
  return share(first_lines(all), limit);
}

Result<> Processes::gather(const Interpreter& process, Measurement& measurement) {
  measurement.processes = count();
  if (!group_) {
    measurement.start = process.start();
    measurement.end = process.end();
    measurement.exchanges = process.exchanged();
    measurement.collectives = process.collectives();
    measurement.memory = {process_memory()};
    return {};
  }
  const std::string mine = result_bytes(process, measurement, group_->clock_offset_ns());
  const std::int32_t self = group_->launch().process;
  if (self != 0) return group_->store().set("result/" + std::to_string(self), mine);
  std::vector<std::string> results{mine};
  for (std::int32_t p = 1; p < count(); ++p) {
    Result<std::string> result = group_->store().get("result/" + std::to_string(p), timeout_s_);
    if (!result) return result.error();
    results.push_back(std::move(result).value());
  }
  if (!merge(results, measurement)) return Error{"the processes' measurements do not fit together"};
  if (launched()) measurement.memory.push_back(process_memory(getppid()));
  return {};
}

int Processes::fail(const std::string& message, int code) {
  if (!group_) {
    if (!others_fault_) say_(message);
    end_process_soon(code);
    return code;
  }
  using Kind = FailureReport::Kind;
  Kind kind = others_fault_ ? Kind::PeerLost : Kind::Own;
  if (communicator_) {
    switch (communicator_->trouble()) {
      case GlooTrouble::None:
        break;
      case GlooTrouble::Timeout:
        kind = Kind::Timeout;
        break;
      case GlooTrouble::PeerLost:
      case GlooTrouble::Ended:
        kind = Kind::PeerLost;
        break;
    }
  }
  const int ends = group_->failed({.kind = kind, .rank = -1, .exit_code = code, .text = message});
  end_process_soon(ends);
  return ends;
}

bool Processes::leave() {
  if (!group_) return true;
  group_->on_end(nullptr);
  const Result<> all = group_->leave();
  if (!all && !all.error().infeasible) say_("run: " + all.error().message);
  return bool(all);
}

}  // namespace rehearse::exec
