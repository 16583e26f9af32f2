// SPDX-License-Identifier: Apache-2.0
// Tables and columns as in "SQLite Export Schema Reference" of the User Guide of Nsight Systems
// (docs.nvidia.com/nsight-systems/UserGuide, "exported_data"): a table is there where it has rows;
// a globalTid holds its process in the bits above its lowest 24, a globalPid nothing else.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>

#include "schedules/base/installed/module.h"
#include "viz/profile/read_profiles.h"
#include "viz/profile/sqlite_module.h"

namespace rehearse::viz {
namespace {

constexpr std::int64_t kMostNsysTime = std::int64_t{1} << 61;  // [ns], so that sums fit

class Nsys {
 public:
  Nsys(const SqliteModule& sqlite, const std::string& path, const Families& families)
      : sqlite_(sqlite), path_(path), families_(families) {}

  Result<std::vector<RankProfile>> profiles() {
    each("SELECT name FROM sqlite_master WHERE type = 'table'",
         [this](SqlRow row) { tables_.emplace(row[0].text); });
    if (fault_.message.empty() && !has("CUPTI_ACTIVITY_KIND_KERNEL")) {
      fault_.message =
          path_ + ": holds no CUPTI_ACTIVITY_KIND_KERNEL: profile with --trace=cuda,nvtx";
    }
    if (!fault_.message.empty()) return fault_;
    read_steps();
    read_launches();
    read_kernels();
    for (const char* table : {"CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"}) {
      if (has(table)) read_copies(table);
    }
    std::int64_t base = 0;
    if (has("TARGET_INFO_SESSION_START_TIME")) {
      each("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME",
           [&base](SqlRow row) { base = row[0].number; });
    }
    if (!fault_.message.empty()) return fault_;
    return finish(std::clamp<std::int64_t>(base, 0, kMostNsysTime));
  }

 private:
  // A process on a device: one rank.
  using Place = std::pair<std::int64_t, std::int64_t>;  // device, globalPid
  struct StepOfProcess {
    std::int64_t begin = 0, end = 0, number = 0;  // as the host marks it
  };

  bool has(const char* table) const { return tables_.contains(table); }
  template <class Take>
  void each(const std::string& sql, const Take& take) {
    if (!fault_.message.empty()) return;
    const Result<> done = sqlite_.each(path_, sql, [&take](SqlRow row) {
      take(row);
      return true;
    });
    if (!done) fault_ = done.error();
  }
  static std::int64_t process_of(std::int64_t thread) { return thread & ~std::int64_t{0xffffff}; }
  static bool lasts(std::int64_t begin, std::int64_t end) {
    return begin >= -kMostNsysTime && begin <= end && end <= kMostNsysTime;
  }

  // Ranges of NVTX that were pushed and popped (59), or started and ended (60).
  void read_steps() {
    if (!has("NVTX_EVENTS")) return;
    each(
        "SELECT n.start, n.\"end\", n.globalTid, coalesce(n.text, s.value) FROM NVTX_EVENTS n "
        "LEFT JOIN StringIds s ON s.id = n.textId "
        "WHERE n.eventType IN (59, 60) AND n.\"end\" IS NOT NULL",
        [this](SqlRow row) {
          const std::int64_t number = step_number(row[3].text);
          if (number < 0 || !lasts(row[0].number, row[1].number)) return;
          steps_[process_of(row[2].number)].push_back({row[0].number, row[1].number, number});
        });
    for (auto& [process, steps] : steps_) std::ranges::sort(steps, {}, &StepOfProcess::begin);
  }

  // Which step the launch of a kernel lies in: the host runs ahead of its device.
  void read_launches() {
    if (steps_.empty() || !has("CUPTI_ACTIVITY_KIND_RUNTIME")) return;
    each("SELECT start, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME",
         [this](SqlRow row) {
           const std::int64_t process = process_of(row[1].number);
           const auto steps = steps_.find(process);
           if (steps == steps_.end()) return;
           const auto behind =
               std::ranges::upper_bound(steps->second, row[0].number, {}, &StepOfProcess::begin);
           if (behind == steps->second.begin() || (behind - 1)->end < row[0].number) return;
           step_of_launch_[process][row[2].number] = (behind - 1)->number;
         });
  }

  int family(std::string_view name) {
    const auto known = family_.find(std::string(name));
    if (known != family_.end()) return known->second;
    return family_[std::string(name)] = families_.of(name);
  }

  void read_kernels() {
    each(
        "SELECT k.start, k.\"end\", k.deviceId, k.globalPid, k.correlationId, s.value "
        "FROM CUPTI_ACTIVITY_KIND_KERNEL k LEFT JOIN StringIds s ON s.id = k.demangledName",
        [this](SqlRow row) {
          const std::int64_t begin = row[0].number, end = row[1].number;
          if (!lasts(begin, end)) return;
          const Place place{row[2].number, row[3].number};
          ProfileBuilder& build = places_[place];
          RankProfile& profile = build.profile();
          profile.families.resize(families_.size());
          profile.kernels.add(end - begin);
          const int of = family(row[5].text);
          if (of < 0) {
            build.computes(begin, end);
          } else {
            profile.families[static_cast<std::size_t>(of)].add(end - begin);
            build.exchanges({.begin = begin,
                             .end = end,
                             .meeting = meeting_by_name(row[5].text),
                             .whole = false});
          }
          reach(place, row[3].number, row[4].number, begin, end);
        });
  }

  // A step of a device reaches from its first kernel to its last.
  void reach(const Place& place, std::int64_t process, std::int64_t correlation, std::int64_t begin,
             std::int64_t end) {
    const auto launches = step_of_launch_.find(process_of(process));
    if (launches == step_of_launch_.end()) return;
    const auto step = launches->second.find(correlation);
    if (step == launches->second.end()) return;
    const auto [at, fresh] = extent_[place].try_emplace(step->second, begin, end);
    if (fresh) return;
    at->second.first = std::min(at->second.first, begin);
    at->second.second = std::max(at->second.second, end);
  }

  void read_copies(const std::string& table) {
    each("SELECT start, \"end\", deviceId, globalPid FROM " + table, [this](SqlRow row) {
      if (!lasts(row[0].number, row[1].number)) return;
      const auto place = places_.find({row[2].number, row[3].number});
      if (place == places_.end()) return;  // it runs no kernel
      place->second.exchanges({.begin = row[0].number, .end = row[1].number});
    });
  }

  Result<std::vector<RankProfile>> finish(std::int64_t base) {
    std::vector<RankProfile> out;
    const std::int64_t number = rank_in_name(path_);
    const auto places = static_cast<std::int64_t>(places_.size());
    for (auto& [place, build] : places_) {
      for (const auto& [step, extent] : extent_[place]) {
        build.step(step, extent.first, extent.second);
      }
      RankProfile profile = build.finish(base);
      if (profile.moments.empty()) continue;
      const std::int64_t first = places == 1 ? number : std::max<std::int64_t>(number, 0) * places;
      const std::int64_t rank = first + static_cast<std::int64_t>(out.size());
      profile.rank = static_cast<std::int32_t>(
          std::min<std::int64_t>(rank, std::numeric_limits<std::int32_t>::max()));
      profile.path = path_;
      profile.devices = true;
      out.push_back(std::move(profile));
    }
    if (out.empty()) return Error{path_ + ": no kernels that take time"};
    return out;
  }

  const SqliteModule& sqlite_;
  const std::string& path_;
  const Families& families_;
  Error fault_;  // of the first query that failed
  std::set<std::string, std::less<>> tables_;
  std::map<std::int64_t, std::vector<StepOfProcess>> steps_;  // by process
  std::map<std::int64_t, std::unordered_map<std::int64_t, std::int64_t>> step_of_launch_;
  std::unordered_map<std::string, int> family_;  // by the kernel's name
  std::map<Place, ProfileBuilder> places_;
  std::map<Place, std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>>> extent_;
};

}  // namespace

Result<std::vector<RankProfile>> nsys_profiles(const std::string& path, const Families& families) {
  const Result<const SqliteModule*> sqlite = load_module<SqliteModule>();
  if (!sqlite) return Error{path + ": " + sqlite.error().message};
  return Nsys(*sqlite.value(), path, families).profiles();
}

}  // namespace rehearse::viz
