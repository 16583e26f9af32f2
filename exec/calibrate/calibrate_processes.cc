// SPDX-License-Identifier: Apache-2.0
// What ranks in processes of their own do to each other: collectives and transfers by size and
// number of processes, by each other's memory and by TCP.
//
// Processes are communicators in threads of this one: neither Gloo nor the kernel, which reads a
// neighbor's memory, knows the difference. Where the build has no Gloo, or the machine forbids a
// way, nothing is measured of it.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "exec/calibrate/calibrate_parts.h"
#include "exec/messages/gloo_communicator.h"
#include "exec/store/secret.h"

namespace rehearse::exec {
namespace {

constexpr double kTimeout = 60;  // [s] of an exchange, and until all have met
constexpr double kSilence = 20;
// Whoever waits is asleep, and woken late now and then: of three times the middle one could be
// late.
constexpr int kRepetitions = 11;

// A communicator per process, of one rank each.
class ProcessMesh {
 public:
  ProcessMesh(std::int32_t processes, bool by_memory)
      : clients_(static_cast<std::size_t>(processes)), communicators_(clients_.size()) {
    const Identity all{.processes = processes, .ranks = processes, .secret = fresh_secret()};
    Result<std::unique_ptr<StoreServer>> server = StoreServer::start(all, 0);
    if (!server) return;
    server_ = std::move(server).value();
    std::vector<std::thread> threads;
    for (std::int32_t p = 0; p < processes; ++p) {
      threads.emplace_back([this, p, by_memory, who = all]() mutable {
        who.process = p;
        join(who, by_memory);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Do they meet, in the way that was asked for?
  bool complete(bool by_memory) const {
    return std::ranges::all_of(communicators_, [&](const auto& one) {
      return one != nullptr && (one->reached_through_memory() > 0) == by_memory;
    });
  }
  ProcessCommunicator& at(std::int32_t process) {
    return *communicators_[static_cast<std::size_t>(process)];
  }

 private:
  void join(const Identity& who, bool by_memory) {
    auto client = StoreClient::join("127.0.0.1", server_->port(), who, kTimeout, kSilence,
                                    StoreClient::Events());
    if (!client) return;
    const auto p = static_cast<std::size_t>(who.process);
    clients_[p] = std::move(client).value();
    auto connected = connect_gloo({.process = who.process,
                                   .processes = who.processes,
                                   .ranks = who.ranks,
                                   .address = clients_[p]->address(),
                                   .secret = who.secret,
                                   .timeout_s = kTimeout,
                                   .shared_memory = by_memory},
                                  *clients_[p]);
    if (connected) communicators_[p] = std::move(connected).value();
  }

  std::unique_ptr<StoreServer> server_;
  std::vector<std::unique_ptr<StoreClient>> clients_;
  std::vector<std::unique_ptr<ProcessCommunicator>> communicators_;
};

// Until everyone who was asked has called.
class Calls {
 public:
  Communicator::Done expected() {
    const std::lock_guard lock(mutex_);
    ++open_;
    return [this](const Result<>& result) {
      const std::lock_guard guard(mutex_);
      if (!result) error_ = result.error().message;
      if (--open_ == 0) done_.notify_all();
    };
  }
  // Error: the last one's.
  Result<> wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return open_ == 0; });
    if (error_.empty()) return {};
    return Error{error_};
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  int open_ = 0;
  std::string error_;
};

class Exchanges {
 public:
  Exchanges(Calibration& c, ProcessMesh& mesh, std::int32_t processes, ExchangeTime::Way way)
      : c_(c),
        mesh_(mesh),
        processes_(processes),
        way_(way),
        watch_(c.device, std::max(kRepetitions, c.sizes.repetitions), c.sizes.seconds) {
    for (std::int32_t r = 0; r < processes; ++r) ranks_.push_back(r);
  }

  void collective(const ExchangeForm& form, std::int64_t elements) {
    const bool in_place = form.in_place();
    const std::size_t members = ranks_.size();
    std::vector<std::vector<Contribution>> brought(members, std::vector<Contribution>(members));
    add(form, elements, [&] {
      for (std::int32_t p = 0; p < processes_; ++p) {
        const auto own = static_cast<std::size_t>(p);
        Contribution& mine = brought[own][own];
        mine.in = in_place ? c_.written.next(elements) : c_.memory.next(elements);
        mine.out = in_place ? mine.in : c_.written.next(elements);
        mesh_.at(p).collective({.kind = form.kind,
                                .elements = elements,
                                .sequence = sequence_,
                                .ranks = ranks_,
                                .contributions = brought[own]},
                               calls_.expected());
      }
    });
  }

  void transfer(std::int64_t elements) {
    const auto bytes = static_cast<std::size_t>(elements) * sizeof(float);
    add({OpKind::Send}, elements, [&] {
      const auto tag = static_cast<std::uint64_t>(sequence_);
      auto* from = reinterpret_cast<std::byte*>(c_.memory.next(elements));
      auto* to = reinterpret_cast<std::byte*>(c_.written.next(elements));
      mesh_.at(0).send({0, Stream::Compute}, 1, tag, {from, bytes}, calls_.expected());
      mesh_.at(1).receive({1, Stream::Compute}, 0, tag, {to, bytes}, calls_.expected());
    });
  }

 private:
  void add(const ExchangeForm& form, std::int64_t elements, const std::function<void()>& begin) {
    const double us = watch_.median_us([&] {
      begin();
      ++sequence_;
      if (const Result<> done = calls_.wait(); !done) c_.watch.fail(done.error().message);
    });
    c_.tables.exchanges.push_back({form.kind, processes_, 4 * elements, us, way_, form.apart});
  }

  Calibration& c_;
  ProcessMesh& mesh_;
  const std::int32_t processes_;
  const ExchangeTime::Way way_;
  Stopwatch watch_;
  std::vector<std::int32_t> ranks_;
  std::int64_t sequence_ = 0;
  Calls calls_;
};

}  // namespace

void measure_processes(Calibration& c) {
  if (!has_gloo()) return;
  const CalibrateSizes::Range& range = c.sizes.exchanged;
  double share = 0;
  for (const bool by_memory : {true, false}) {
    for (const std::int32_t processes : {2, 4}) {
      c.progress("processes", share += 0.25);
      ProcessMesh mesh(processes, by_memory);
      if (!mesh.complete(by_memory)) continue;
      Exchanges exchanges(c, mesh, processes,
                          by_memory ? ExchangeTime::Way::Memory : ExchangeTime::Way::Tcp);
      for (std::int64_t n = range.first; n <= range.last; n *= range.factor) {
        for (const ExchangeForm& form : kExchangeForms) exchanges.collective(form, n);
        if (processes == 2) exchanges.transfer(n);
      }
    }
  }
}

}  // namespace rehearse::exec
