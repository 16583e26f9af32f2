#include "exec/gloo_communicator.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "exec/collectives.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kSmall = 8192;  // bytes of an all-reduce that everybody sums whole
// Slots: transfers have their tag; collectives the top bit, instance 20, sequence 31, message 12 bits.
constexpr std::uint64_t kCollective = std::uint64_t{1} << 63;
constexpr std::int32_t kAgreement = (1 << 20) - 1;  // the instance of largest()
constexpr std::int64_t kMessages = 1 << 12;
constexpr auto kEarly = std::chrono::milliseconds(5);  // by which a wait may end before its deadline

// The keys of Gloo's own meeting, in our store.
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
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    wait_for(keys, std::chrono::duration<double>(timeout).count());
  }

 private:
  void wait_for(std::vector<std::string> keys, double timeout_s) {
    for (std::string& key : keys) key.insert(0, "gloo/");
    check(store_.wait(keys, timeout_s));
  }
  template <class T>
  static void check(const Result<T>& result) {  // Gloo's way to fail; connect_gloo catches it
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

struct Message {
  std::int32_t process = 0;  // the other one
  std::uint64_t slot = 0;
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  bool send = false;
};

class GlooCommunicator final : public ProcessCommunicator {
 public:
  GlooCommunicator(const GlooOptions& options, std::shared_ptr<gloo::rendezvous::Context> context)
      : options_(options), each_(options.ranks / options.processes), context_(std::move(context)) {}
  ~GlooCommunicator() override { end("the communicator was closed"); }

  std::string_view name() const override { return "gloo"; }
  std::int32_t process() const override { return options_.process; }
  std::int32_t processes() const override { return options_.processes; }
  void collective(const Exchange& exchange, Done done) override;
  void send(Lane from, std::int32_t to_rank, std::uint64_t tag, std::span<const std::byte> data,
            Done done) override {
    (void)from;  // Gloo only reads what it sends
    auto* bytes = const_cast<std::byte*>(data.data());
    one({process_of(to_rank), tag, bytes, static_cast<std::int64_t>(data.size()), true}, std::move(done));
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
  Result<double> largest(double value) override;

 private:
  friend class Composition;
  std::int32_t process_of(std::int32_t rank) const { return rank / each_; }
  void one(const Message& message, Done done) {
    waiters_.run([this, message, done = std::move(done)] { done(move({&message, 1})); });
  }
  Result<> move(std::span<const Message> messages);
  void break_off(GlooTrouble trouble, const std::string& why);
  Error broken() const {
    const std::lock_guard lock(mutex_);
    return {why_};
  }

  const GlooOptions options_;
  const std::int32_t each_;  // ranks of a process
  std::shared_ptr<gloo::rendezvous::Context> context_;
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
}

// Sends and receives all of it; waits until all is done, or nothing will be.
Result<> GlooCommunicator::move(std::span<const Message> messages) {
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;
  std::vector<Buffer> buffers;
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::milliseconds(static_cast<std::int64_t>(options_.timeout_s * 1000));
  const auto forget = [&] {
    const std::lock_guard lock(mutex_);
    for (const Buffer& buffer : buffers) waiting_.erase(buffer.get());
  };
  const Message* at = nullptr;
  const auto partner = [&] { return "process " + std::to_string(at->process); };
  const auto left = [&] {
    const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    return std::max(rest, std::chrono::milliseconds(1));
  };
  bool done = true;
  try {
    for (const Message& message : messages) {
      buffers.push_back(context_->createUnboundBuffer(message.data, static_cast<std::size_t>(message.bytes)));
    }
    {
      const std::lock_guard lock(mutex_);
      if (trouble_ != GlooTrouble::None) return Error{why_};
      for (const Buffer& buffer : buffers) waiting_.insert(buffer.get());
    }
    for (const bool sends : {false, true}) {  // receives first: a send finds its place
      for (std::size_t i = 0; i < messages.size(); ++i) {
        at = &messages[i];
        if (at->send != sends) continue;
        sends ? buffers[i]->send(at->process, at->slot) : buffers[i]->recv(at->process, at->slot);
      }
    }
    for (std::size_t i = 0; i < messages.size() && done; ++i) {
      at = &messages[i];
      done = at->send ? buffers[i]->waitSend(left()) : buffers[i]->waitRecv(left());
    }
  } catch (const std::exception& error) {  // Gloo's way to fail
    const bool late = std::chrono::steady_clock::now() + kEarly >= deadline;
    break_off(late ? GlooTrouble::Timeout : GlooTrouble::PeerLost,
              late ? "no answer from " + partner() + " for " +
                         std::to_string(static_cast<std::int64_t>(options_.timeout_s)) + " s"
                   : "the connection to " + partner() + " is lost");
    done = false;
  }
  forget();
  if (done) return {};
  return broken();
}

// One exchange: its members, those that are here, and what travels.
class Composition {
 public:
  Composition(GlooCommunicator& over, const Exchange& exchange) : over_(over), x_(exchange) {
    for (std::size_t m = 0; m < x_.ranks.size(); ++m) {
      process_.push_back(over.process_of(x_.ranks[m]));
      if (process_.back() == over.process()) here_.push_back(static_cast<std::int32_t>(m));
      if (others_.empty() || others_.back() != process_.back()) others_.push_back(process_.back());
    }
    std::ranges::sort(others_);
    others_.erase(std::unique(others_.begin(), others_.end()), others_.end());
    std::erase(others_, over.process());
  }
  Result<> perform();

 private:
  std::int64_t width() const { return bytes_of(x_.type); }
  std::int32_t members() const { return static_cast<std::int32_t>(x_.ranks.size()); }
  std::int64_t part() const { return x_.elements / members() * width(); }  // bytes
  bool is_here(std::int32_t m) const { return process_[static_cast<std::size_t>(m)] == over_.process(); }
  std::int32_t process(std::int32_t m) const { return process_[static_cast<std::size_t>(m)]; }
  std::byte* in(std::int32_t m) const { return static_cast<std::byte*>(x_.contributions[static_cast<std::size_t>(m)].in); }
  std::byte* out(std::int32_t m) const { return static_cast<std::byte*>(x_.contributions[static_cast<std::size_t>(m)].out); }
  // Where a member's own part is (AllGather), or goes to (ReduceScatter), in place or not.
  std::byte* own(std::byte* at, std::int32_t m) const { return in(m) == out(m) ? at + m * part() : at; }

  std::uint64_t slot(std::int64_t message) const {
    return kCollective | (static_cast<std::uint64_t>(x_.instance) << 43) |
           ((static_cast<std::uint64_t>(x_.sequence) & 0x7fffffff) << 12) | static_cast<std::uint64_t>(message);
  }
  void send(std::int32_t to, std::int64_t message, std::byte* data, std::int64_t bytes) {
    if (bytes > 0) messages_.push_back({to, slot(message), data, bytes, true});
  }
  void receive(std::int32_t from, std::int64_t message, std::byte* data, std::int64_t bytes) {
    if (bytes > 0) messages_.push_back({from, slot(message), data, bytes, false});
  }
  Result<> move() {
    const Result<> moved = over_.move(messages_);
    messages_.clear();
    return moved;
  }
  std::byte* scratch(std::int64_t bytes) {
    scratch_.emplace_back(new std::byte[static_cast<std::size_t>(bytes)]);
    return scratch_.back().get();
  }
  // Number of a message from member a to member b: a's and b's places among their processes' members.
  std::int64_t message(std::int32_t a, std::int32_t b) const {
    const auto place = [this](std::int32_t m) {
      return std::count(process_.begin(), process_.begin() + m, process(m));
    };
    return place(a) * std::count(process_.begin(), process_.end(), process(b)) + place(b);
  }
  // Bytes [begin, end) of every member's array, in order, summed into `to`.
  Result<> gather_and_sum(std::int64_t begin, std::int64_t end, std::byte* to);

  Result<> all_reduce();
  Result<> reduce_scatter();
  Result<> all_gather();
  Result<> broadcast();
  Result<> reduce();
  Result<> gather();
  Result<> scatter();
  Result<> all_to_all();
  Result<> shift();

  GlooCommunicator& over_;
  const Exchange& x_;
  std::vector<std::int32_t> process_;  // by member
  std::vector<std::int32_t> here_;     // members of this process
  std::vector<std::int32_t> others_;   // the other processes that have members
  std::vector<Message> messages_;
  std::vector<std::unique_ptr<std::byte[]>> scratch_;
};

// REQUIRES: the other processes' sends of [begin, end) to this one, and this one's to them, are what
// messages_ lacks only on the receiving side.
Result<> Composition::gather_and_sum(std::int64_t begin, std::int64_t end, std::byte* to) {
  std::vector<const void*> arrays;
  for (std::int32_t m = 0; m < members(); ++m) {
    if (is_here(m)) {
      arrays.push_back(in(m) + begin);
      continue;
    }
    std::byte* from = scratch(end - begin);
    receive(process(m), m, from, end - begin);
    arrays.push_back(from);
  }
  const Result<> moved = move();
  if (moved && end > begin) combine(x_.type, arrays, (end - begin) / width(), x_.maximum, to);
  return moved;
}

Result<> Composition::all_reduce() {
  const std::int64_t bytes = x_.elements * width();
  std::byte* first = out(here_.front());
  const auto copy_to_the_rest = [&] {
    for (const std::int32_t m : here_) {
      if (out(m) != first) std::memcpy(out(m), first, static_cast<std::size_t>(bytes));
    }
  };
  if (bytes <= kSmall) {
    for (const std::int32_t p : others_) {
      for (const std::int32_t m : here_) send(p, m, in(m), bytes);
    }
    const Result<> summed = gather_and_sum(0, bytes, first);
    if (summed) copy_to_the_rest();
    return summed;
  }
  // Slice k of the arrays is summed by the k-th process that has members.
  std::vector<std::int32_t> all = others_;
  all.insert(std::ranges::lower_bound(all, over_.process()), over_.process());
  const auto slice = [&](std::int32_t p) {
    const auto k = std::ranges::lower_bound(all, p) - all.begin();
    const auto count = static_cast<std::int64_t>(all.size());
    return std::pair{x_.elements * k / count * width(), x_.elements * (k + 1) / count * width()};
  };
  for (const std::int32_t p : others_) {
    const auto [begin, end] = slice(p);
    for (const std::int32_t m : here_) send(p, m, in(m) + begin, end - begin);
  }
  const auto [begin, end] = slice(over_.process());
  const Result<> summed = gather_and_sum(begin, end, first + begin);
  if (!summed) return summed;
  for (const std::int32_t p : others_) {
    const auto [from, to] = slice(p);
    send(p, members(), first + begin, end - begin);
    receive(p, members(), first + from, to - from);
  }
  const Result<> moved = move();
  if (moved) copy_to_the_rest();
  return moved;
}

Result<> Composition::reduce_scatter() {
  for (const std::int32_t a : here_) {
    for (std::int32_t b = 0; b < members(); ++b) {
      if (!is_here(b)) send(process(b), message(a, b), in(a) + b * part(), part());
    }
  }
  std::vector<std::vector<const void*>> arrays;
  for (const std::int32_t b : here_) {
    std::vector<const void*>& of = arrays.emplace_back();
    for (std::int32_t a = 0; a < members(); ++a) {
      std::byte* from = is_here(a) ? in(a) + b * part() : scratch(part());
      if (!is_here(a)) receive(process(a), message(a, b), from, part());
      of.push_back(from);
    }
  }
  const Result<> moved = move();
  if (!moved) return moved;
  for (std::size_t i = 0; i < here_.size(); ++i) {
    combine(x_.type, arrays[i], part() / width(), x_.maximum, own(out(here_[i]), here_[i]));
  }
  return {};
}

Result<> Composition::all_gather() {
  std::byte* first = out(here_.front());
  for (const std::int32_t a : here_) {
    for (const std::int32_t p : others_) send(p, a, own(in(a), a), part());
  }
  for (std::int32_t a = 0; a < members(); ++a) {
    if (!is_here(a)) receive(process(a), a, first + a * part(), part());
  }
  const Result<> moved = move();
  if (!moved) return moved;
  for (std::int32_t a = 0; a < members(); ++a) {
    const std::byte* from = is_here(a) ? own(in(a), a) : first + a * part();
    for (const std::int32_t m : here_) {
      std::byte* to = out(m) + a * part();
      if (to != from) std::memcpy(to, from, static_cast<std::size_t>(part()));
    }
  }
  return {};
}

Result<> Composition::broadcast() {
  const std::int64_t bytes = x_.elements * width();
  const std::byte* from = out(here_.front());
  if (is_here(x_.root)) {
    from = in(x_.root);
    for (const std::int32_t p : others_) send(p, 0, in(x_.root), bytes);
  } else {
    receive(process(x_.root), 0, out(here_.front()), bytes);
  }
  const Result<> moved = move();
  if (!moved) return moved;
  for (const std::int32_t m : here_) {
    if (out(m) != from) std::memcpy(out(m), from, static_cast<std::size_t>(bytes));
  }
  return {};
}

Result<> Composition::reduce() {
  const std::int64_t bytes = x_.elements * width();
  if (is_here(x_.root)) return gather_and_sum(0, bytes, out(x_.root));
  for (const std::int32_t m : here_) send(process(x_.root), m, in(m), bytes);
  return move();
}

Result<> Composition::gather() {
  for (std::int32_t m = 0; m < members(); ++m) {
    if (is_here(x_.root) && !is_here(m)) receive(process(m), m, out(x_.root) + m * part(), part());
    if (!is_here(x_.root) && is_here(m)) send(process(x_.root), m, in(m), part());
  }
  const Result<> moved = move();
  if (!moved || !is_here(x_.root)) return moved;
  for (const std::int32_t m : here_) {
    std::byte* to = out(x_.root) + m * part();
    if (to != in(m)) std::memcpy(to, in(m), static_cast<std::size_t>(part()));
  }
  return {};
}

Result<> Composition::scatter() {
  for (std::int32_t m = 0; m < members(); ++m) {
    if (is_here(x_.root) && !is_here(m)) send(process(m), m, in(x_.root) + m * part(), part());
    if (!is_here(x_.root) && is_here(m)) receive(process(x_.root), m, out(m), part());
  }
  const Result<> moved = move();
  if (!moved || !is_here(x_.root)) return moved;
  for (const std::int32_t m : here_) {
    const std::byte* from = in(x_.root) + m * part();
    if (out(m) != from) std::memcpy(out(m), from, static_cast<std::size_t>(part()));
  }
  return {};
}

Result<> Composition::all_to_all() {
  for (const std::int32_t m : here_) {
    for (std::int32_t k = 0; k < members(); ++k) {
      if (is_here(k)) {
        std::memcpy(out(m) + k * part(), in(k) + m * part(), static_cast<std::size_t>(part()));
      } else {
        send(process(k), message(m, k), in(m) + k * part(), part());
        receive(process(k), message(k, m), out(m) + k * part(), part());
      }
    }
  }
  return move();
}

Result<> Composition::shift() {
  const std::int64_t bytes = x_.elements * width();
  for (const std::int32_t m : here_) {
    const std::int32_t next = (m + 1) % members(), before = (m + members() - 1) % members();
    if (is_here(next)) {
      std::memcpy(out(next), in(m), static_cast<std::size_t>(bytes));
    } else {
      send(process(next), m, in(m), bytes);
    }
    if (!is_here(before)) receive(process(before), before, out(m), bytes);
  }
  return move();
}

Result<> Composition::perform() {
  if (x_.type == ElementType::BFloat16) return Error{"gloo: the CPU computes in fp32"};
  const auto most = static_cast<std::int64_t>(members());
  if (most >= kMessages || static_cast<std::int64_t>(here_.size()) * static_cast<std::int64_t>(here_.size()) > kMessages) {
    return Error{"gloo: a group of " + std::to_string(most) + " ranks is too large"};
  }
  if (others_.empty()) {
    exec::perform(x_);
    return {};
  }
  switch (x_.kind) {
    case OpKind::AllReduce: return all_reduce();
    case OpKind::ReduceScatter: return reduce_scatter();
    case OpKind::AllGather:
    case OpKind::Unshard: return all_gather();
    case OpKind::Broadcast: return broadcast();
    case OpKind::Reduce: return reduce();
    case OpKind::Gather: return gather();
    case OpKind::Scatter: return scatter();
    case OpKind::AllToAll: return all_to_all();
    case OpKind::Send: return shift();
    default: return Error{"gloo: no collective"};
  }
}

void GlooCommunicator::collective(const Exchange& exchange, Done done) {
  waiters_.run([this, exchange, done = std::move(done)] { done(Composition(*this, exchange).perform()); });
}

Result<double> GlooCommunicator::largest(double value) {
  std::vector<std::int32_t> ranks;
  for (std::int32_t p = 0; p < options_.processes; ++p) ranks.push_back(p * each_);
  std::vector<Contribution> contributions(ranks.size());
  contributions[static_cast<std::size_t>(options_.process)] = {&value, &value};
  const Exchange exchange{.kind = OpKind::AllReduce, .type = ElementType::Float64, .maximum = true, .elements = 1,
                          .instance = kAgreement, .sequence = agreements_++, .ranks = ranks,
                          .contributions = contributions};
  const Result<> done = Composition(*this, exchange).perform();
  if (!done) return done.error();
  return value;
}

}  // namespace

bool has_gloo() { return true; }

Result<std::unique_ptr<ProcessCommunicator>> connect_gloo(const GlooOptions& options, StoreClient& store) {
  try {
    const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(options.timeout_s * 1000));
    gloo::transport::tcp::attr where;
    where.hostname = options.address;
    auto device = gloo::transport::tcp::CreateDevice(where);
    auto context = std::make_shared<gloo::rendezvous::Context>(options.process, options.processes);
    context->setTimeout(timeout);
    GlooStore keys(store, options.timeout_s);
    context->connectFullMesh(keys, device);
    return std::unique_ptr<ProcessCommunicator>(new GlooCommunicator(options, std::move(context)));
  } catch (const std::exception& error) {  // Gloo's way to fail; its text has paths of its sources
    const std::string text = error.what();
    const bool ours = text.find("[/") == std::string::npos && text.find(".cc:") == std::string::npos;
    return Error{"gloo: the processes cannot connect at " + options.address + (ours ? ": " + text : std::string())};
  }
}

}  // namespace rehearse::exec
