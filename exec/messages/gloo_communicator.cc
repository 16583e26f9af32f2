// SPDX-License-Identifier: Apache-2.0
#include "exec/messages/gloo_communicator.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "exec/messages/composed_collectives.h"
#include "exec/messages/link_throttle.h"
#include "exec/messages/shared_memory_transport.h"
#include "exec/store/hmac.h"
#include "exec/store/wire.h"
#include "schedules/base/installed/module.h"

namespace rehearse::exec {
namespace {

constexpr std::int32_t kAgreement = (1 << 20) - 1;       // the instance of largest()
constexpr std::uint64_t kProofSlot = ~std::uint64_t{0};  // of prove(), before all others
constexpr auto kEarly =
    std::chrono::milliseconds(5);  // by which a wait may end before its deadline

// Gloo's own rendezvous keeps its keys in our store.
class GlooStore : public gloo::rendezvous::Store {
 public:
  GlooStore(StoreClient& store, double timeout_s) : store_(store), timeout_s_(timeout_s) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    check(store_.set("gloo/" + key, {data.begin(), data.end()}));
  }
  std::vector<char> get(const std::string& key) override {
    const Result<std::string> value = store_.get("gloo/" + key, timeout_s_);
    check(value);
    return {value.value().begin(), value.value().end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait_for(keys, timeout_s_); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    wait_for(keys, std::chrono::duration<double>(timeout).count());
  }

 private:
  void wait_for(std::vector<std::string> keys, double timeout_s) {
    for (std::string& key : keys) key.insert(0, "gloo/");
    check(store_.wait(keys, timeout_s));
  }
  template <class T>
  static void check(const Result<T>& result) {  // Gloo's way to fail; connect catches it
    if (!result) throw gloo::IoException(result.error().message);
  }
  StoreClient& store_;
  double timeout_s_;
};

// Threads that wait for Gloo: one per exchange under way, so that none waits for another's turn.
class Waiters {
 public:
  ~Waiters() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void run(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
      if (jobs_.size() > idle_) threads_.emplace_back([this] { work(); });
    }
    changed_.notify_one();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      --idle_;
      if (jobs_.empty()) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

class GlooCommunicator final : public ProcessCommunicator {
 public:
  GlooCommunicator(const GlooOptions& options, std::shared_ptr<gloo::rendezvous::Context> context,
                   std::unique_ptr<SharedMemoryTransport> shared_memory)
      : options_(options),
        each_(options.ranks / options.processes),
        context_(std::move(context)),
        shared_memory_(std::move(shared_memory)),
        throttle_(options.throttle, options.processes) {}
  ~GlooCommunicator() override { end("the communicator was closed"); }

  std::string_view name() const override { return "gloo"; }
  std::int32_t process() const override { return options_.process; }
  std::int32_t processes() const override { return options_.processes; }
  void collective(const Exchange& exchange, Done done) override;
  void send(Lane from, std::int32_t to_rank, std::uint64_t tag, std::span<const std::byte> data,
            Done done) override {
    (void)from;  // Gloo only reads what it sends
    auto* bytes = const_cast<std::byte*>(data.data());
    one({process_of(to_rank), tag, bytes, static_cast<std::int64_t>(data.size()), true},
        std::move(done));
  }
  void receive(Lane to, std::int32_t from_rank, std::uint64_t tag, std::span<std::byte> data,
               Done done) override {
    (void)to;
    one({process_of(from_rank), tag, data.data(), static_cast<std::int64_t>(data.size()), false},
        std::move(done));
  }
  void end(const std::string& why) override { break_off(GlooTrouble::Ended, why); }
  GlooTrouble trouble() const override {
    const std::lock_guard lock(mutex_);
    return trouble_;
  }
  std::int32_t reached_through_memory() const override {
    std::int32_t reached = 0;
    for (std::int32_t p = 0; p < options_.processes; ++p)
      reached += shared_memory_->reaches(p) ? 1 : 0;
    return reached;
  }
  Result<double> largest(double value) override;

 private:
  using Clock = LinkThrottle::Clock;
  std::int32_t process_of(std::int32_t rank) const { return rank / each_; }
  void one(Message message, Done done) {
    waiters_.run([message, travel = Travel(*this), done = std::move(done)]() mutable {
      done(travel({&message, 1}));
    });
  }
  // The rounds of one exchange over throttled links. What it asks for counts from when the worker
  // called, and of a later round from when the one before had arrived and what it brought was
  // summed: not from when a thread got a core.
  class Travel {
   public:
    explicit Travel(GlooCommunicator& by) : by_(by) {}
    Result<> operator()(std::span<Message> messages) {
      if (left_) asked_ += Clock::now() - *left_;
      for (Message& message : messages) message.since = asked_;
      const Result<> crossed = by_.cross(messages, asked_);
      left_ = Clock::now();
      return crossed;
    }

   private:
    GlooCommunicator& by_;
    Clock::time_point asked_ = Clock::now();
    std::optional<Clock::time_point> left_;  // the round before
  };
  Result<> move(std::span<Message> messages);
  // The same, over throttled links, and when they have arrived.
  Result<> cross(std::span<Message> messages, Clock::time_point& arrived);
  bool move_near(std::span<Message> messages, Clock::time_point deadline);
  Clock::time_point deadline() const {
    return Clock::now() +
           std::chrono::milliseconds(static_cast<std::int64_t>(options_.timeout_s * 1000));
  }
  void break_off(GlooTrouble trouble, const std::string& why);
  void lose(std::int32_t process, bool late) {
    const std::string partner = "process " + std::to_string(process);
    break_off(late ? GlooTrouble::Timeout : GlooTrouble::PeerLost,
              late ? "no answer from " + partner + " for " +
                         std::to_string(static_cast<std::int64_t>(options_.timeout_s)) + " s"
                   : "the connection to " + partner + " is lost");
  }
  Error broken() const {
    const std::lock_guard lock(mutex_);
    return {why_};
  }

  const GlooOptions options_;
  const std::int32_t each_;  // ranks of a process
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::unique_ptr<SharedMemoryTransport> shared_memory_;  // whom it does not reach, Gloo does
  LinkThrottle throttle_;
  mutable std::mutex mutex_;
  std::set<gloo::transport::UnboundBuffer*> waiting_;  // to be woken when everything ends
  GlooTrouble trouble_ = GlooTrouble::None;
  std::string why_;
  std::int64_t agreements_ = 0;
  Waiters waiters_;  // last: its threads end before what they use
};

void GlooCommunicator::break_off(GlooTrouble trouble, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (trouble_ == GlooTrouble::None) {
    trouble_ = trouble;
    why_ = why;
  }
  for (gloo::transport::UnboundBuffer* buffer : waiting_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
  shared_memory_->end();
  throttle_.end();
}

// Sends and receives all of it; waits until all is done, or nothing will be.
Result<> GlooCommunicator::move(std::span<Message> messages) {
  const Clock::time_point deadline = this->deadline();
  const auto begin = std::stable_partition(
      messages.begin(), messages.end(),
      [this](const Message& message) { return shared_memory_->reaches(message.process); });
  const std::span<Message> near(messages.begin(), begin), far(begin, messages.end());
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;
  std::vector<Buffer> buffers;
  const auto forget = [&] {
    const std::lock_guard lock(mutex_);
    for (const Buffer& buffer : buffers) waiting_.erase(buffer.get());
  };
  const Message* at = messages.data();
  const auto left = [&] {
    const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    return std::max(rest, std::chrono::milliseconds(1));
  };
  bool done = true;
  try {
    for (const Message& message : far) {
      buffers.push_back(
          context_->createUnboundBuffer(message.data, static_cast<std::size_t>(message.bytes)));
    }
    {
      const std::lock_guard lock(mutex_);
      if (trouble_ != GlooTrouble::None) return Error{why_};
      for (const Buffer& buffer : buffers) waiting_.insert(buffer.get());
    }
    for (const bool sends : {false, true}) {  // receives first: a send finds its place
      for (std::size_t i = 0; i < far.size(); ++i) {
        at = &far[i];
        if (at->send != sends) continue;
        sends ? buffers[i]->send(at->process, at->slot) : buffers[i]->recv(at->process, at->slot);
      }
    }
    if (!near.empty()) done = move_near(near, deadline);
    for (std::size_t i = 0; i < far.size() && done; ++i) {
      at = &far[i];
      done = at->send ? buffers[i]->waitSend(left()) : buffers[i]->waitRecv(left());
    }
  } catch (const std::exception& error) {  // Gloo's way to fail
    lose(at->process, std::chrono::steady_clock::now() + kEarly >= deadline);
    done = false;
  }
  forget();
  for (Message& message : far) message.since = Clock::now();
  if (done) return {};
  return broken();
}

Result<> GlooCommunicator::cross(std::span<Message> messages, Clock::time_point& arrived) {
  const Clock::time_point deadline = this->deadline();
  Result<> moved = move(messages);
  if (!moved || messages.empty()) return moved;
  if (const auto when = throttle_.cross(messages, deadline)) {
    arrived = *when;
    return moved;
  }
  break_off(GlooTrouble::Timeout,
            "the throttled link takes longer than " +
                std::to_string(static_cast<std::int64_t>(options_.timeout_s)) + " s");
  return broken();
}

bool GlooCommunicator::move_near(std::span<Message> messages, Clock::time_point deadline) {
  const SharedMemoryTransport::Moved moved = shared_memory_->move(messages, deadline);
  if (moved.outcome == SharedMemoryTransport::Outcome::Late ||
      moved.outcome == SharedMemoryTransport::Outcome::Gone) {
    lose(moved.process, moved.outcome == SharedMemoryTransport::Outcome::Late);
  }
  return moved.outcome == SharedMemoryTransport::Outcome::Done;
}

void GlooCommunicator::collective(const Exchange& exchange, Done done) {
  waiters_.run([this, exchange, travel = Travel(*this), done = std::move(done)] {
    done(compose(exchange, options_.process, each_, travel));
  });
}

Result<double> GlooCommunicator::largest(double value) {
  std::vector<std::int32_t> ranks;
  for (std::int32_t p = 0; p < options_.processes; ++p) ranks.push_back(p * each_);
  std::vector<Contribution> contributions(ranks.size());
  contributions[static_cast<std::size_t>(options_.process)] = {&value, &value};
  const Exchange exchange{.kind = OpKind::AllReduce,
                          .type = ElementType::Float64,
                          .maximum = true,
                          .elements = 1,
                          .instance = kAgreement,
                          .sequence = agreements_++,
                          .ranks = ranks,
                          .contributions = contributions};
  const Result<> done =
      compose(exchange, options_.process, each_,
              [this](std::span<Message> messages) { return move(messages); });
  if (!done) return done.error();
  return value;
}

// Gloo takes whoever connects first for the process that it expects: both ends of every connection
// prove that they know the secret, with random bytes that came through the store. Nothing else is
// sent before that.
Result<> prove(gloo::Context& context, const GlooOptions& options, StoreClient& store,
               std::chrono::milliseconds timeout) {
  const auto key = [](std::int32_t process) { return "gloo-nonce/" + std::to_string(process); };
  std::vector<std::string> nonces(static_cast<std::size_t>(options.processes));
  const auto self = static_cast<std::size_t>(options.process);
  nonces[self] = random_bytes(kTagBytes);
  if (const Result<> set = store.set(key(options.process), nonces[self]); !set) return set.error();
  const auto proof = [&](std::size_t from, std::size_t to) {
    const std::string ends = WireWriter().number(from).number(to).take();
    return hmac_sha256(options.secret, "rehearse 2 gloo" + ends + nonces[from] + nonces[to]);
  };
  struct Ends {
    std::string said, heard;
    std::unique_ptr<gloo::transport::UnboundBuffer> out, in;
  };
  std::vector<Ends> all(nonces.size());
  for (std::size_t p = 0; p < all.size(); ++p) {
    if (p == self) continue;
    Result<std::string> nonce = store.get(key(static_cast<std::int32_t>(p)), options.timeout_s);
    if (!nonce) return nonce.error();
    nonces[p] = std::move(nonce).value();
    Ends& ends = all[p];
    ends.said = proof(self, p);
    ends.heard.assign(kTagBytes, '\0');
    ends.in = context.createUnboundBuffer(ends.heard.data(), kTagBytes);
    ends.out = context.createUnboundBuffer(ends.said.data(), kTagBytes);
    ends.in->recv(static_cast<int>(p), kProofSlot);
    ends.out->send(static_cast<int>(p), kProofSlot);
  }
  for (std::size_t p = 0; p < all.size(); ++p) {
    if (p == self) continue;
    const bool moved = all[p].out->waitSend(timeout) && all[p].in->waitRecv(timeout);
    if (moved && same_bytes(all[p].heard, proof(p, self))) continue;
    return Error{"gloo: who connected as process " + std::to_string(p) +
                 " does not know the secret of the run"};
  }
  return {};
}

Result<std::unique_ptr<ProcessCommunicator>> connect(const GlooOptions& options,
                                                     StoreClient& store) {
  std::signal(SIGPIPE, SIG_IGN);  // Gloo writes to connections whose other end may be gone
  try {
    const auto timeout =
        std::chrono::milliseconds(static_cast<std::int64_t>(options.timeout_s * 1000));
    gloo::transport::tcp::attr where;
    where.hostname = options.address;
    auto device = gloo::transport::tcp::CreateDevice(where);
    auto context = std::make_shared<gloo::rendezvous::Context>(options.process, options.processes);
    context->setTimeout(timeout);
    GlooStore keys(store, options.timeout_s);
    context->connectFullMesh(keys, device);
    if (const Result<> proved = prove(*context, options, store, timeout); !proved) {
      return proved.error();
    }
    auto shared_memory = SharedMemoryTransport::connect({.process = options.process,
                                                         .processes = options.processes,
                                                         .ranks = options.ranks,
                                                         .willing = options.shared_memory,
                                                         .timeout_s = options.timeout_s},
                                                        store);
    if (!shared_memory) return shared_memory.error();
    return std::unique_ptr<ProcessCommunicator>(
        new GlooCommunicator(options, std::move(context), std::move(shared_memory).value()));
  } catch (const std::exception& error) {  // Gloo's way to fail; its text has paths of its sources
    const std::string text = error.what();
    const bool ours =
        text.find("[/") == std::string::npos && text.find(".cc:") == std::string::npos;
    return Error{"gloo: the processes cannot connect at " + options.address +
                 (ours ? ": " + text : std::string())};
  }
}

}  // namespace
}  // namespace rehearse::exec

REHEARSE_MODULE(gloo, rehearse::exec::GlooModule, .connect = rehearse::exec::connect)
