// SPDX-License-Identifier: Apache-2.0
#include "exec/messages/shared_memory_transport.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <climits>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <vector>

#include "exec/store/socket.h"

namespace rehearse::exec {
namespace {

using std::chrono::steady_clock;

constexpr auto kNap = std::chrono::milliseconds(50);   // between looks whether the others live
constexpr auto kSpin = std::chrono::microseconds(10);  // before a nap: less than waking up costs
constexpr auto kFull = std::chrono::microseconds(50);  // between looks for a free place
constexpr std::uint64_t kProbe = 0x7265686561727365;   // what everybody reads of everybody
constexpr std::int32_t kLeastPlaces = 64;              // of a mailbox
constexpr std::int32_t kPlacesPerPair = 16;            // for each pair of their ranks
const std::uint64_t probe = kProbe;

// A message that is announced: what the receiver needs to read it.
struct Place {
  enum State : std::uint32_t { Free, Taken, Announced, Read };
  std::atomic<std::uint32_t> state;  // the sender sleeps on it; everything else is the taker's
  std::uint32_t padding;
  std::uint64_t slot, address;
  std::int64_t bytes;
  steady_clock::time_point since;  // the sender asks for it; once Read: Message::since of both ends
};
// Rung by senders; receivers sleep on it.
struct Bell {
  alignas(64) std::atomic<std::uint32_t> rings;
  std::atomic<std::uint32_t> asleep;
  std::atomic<bool> closed;  // its owner has left
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(Place) == 40);

long futex(std::atomic<std::uint32_t>& word, int what, std::uint32_t value,
           const std::timespec* timeout) {
  return syscall(SYS_futex, &word, what, value, timeout, nullptr, 0);
}
void wake(std::atomic<std::uint32_t>& word) {
  futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}
// Until `word` is no longer `value`, or a nap is over.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  const auto until = steady_clock::now() + kSpin;
  do {
    if (word.load(std::memory_order_acquire) != value) return;
  } while (steady_clock::now() < until);
  const std::timespec nap{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kNap).count()};
  futex(word, FUTEX_WAIT, value, &nap);
}

// Reads another process's memory; false: it cannot be read, all of it.
bool read_memory(pid_t pid, std::uint64_t from, std::byte* to, std::int64_t bytes) {
  while (bytes > 0) {
    iovec here{to, static_cast<std::size_t>(bytes)};
    iovec there{reinterpret_cast<void*>(from), static_cast<std::size_t>(bytes)};
    const ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (got <= 0) return false;
    to += got;
    from += static_cast<std::uint64_t>(got);
    bytes -= got;
  }
  return true;
}

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// The same among processes that share a kernel, numbers of processes, and the network: hosts of
// their own are not neighbors even where they are namespaces.
std::string machine() {
  std::string id = first_line("/proc/sys/kernel/random/boot_id");
  if (id.empty()) return {};
  for (const char* space : {"/proc/self/ns/pid", "/proc/self/ns/net"}) {
    char link[64] = {};
    if (readlink(space, link, sizeof link - 1) <= 0) return {};
    id += std::string("/") + link;
  }
  return id;
}

// What a process tells the others: "<pid> <address of its probe> <machine>".
struct Card {
  pid_t pid = 0;
  std::uint64_t probe = 0;
  std::string machine;
};
std::string text(const Card& card) {
  return std::to_string(card.pid) + " " + std::to_string(card.probe) + " " + card.machine;
}
Card parse_card(const std::string& said) {
  Card card;
  std::istringstream in(said);
  in >> card.pid >> card.probe >> card.machine;
  return card;
}

struct Mapping {
  void* data = MAP_FAILED;
  std::size_t bytes = 0;
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (data != MAP_FAILED) munmap(data, bytes);
  }
  bool map(int file, std::size_t size) {
    bytes = size;
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return data != MAP_FAILED;
  }
};

}  // namespace

struct SharedMemoryTransport::Impl {
  std::int32_t self = -1;           // among the processes of this machine
  std::vector<std::int32_t> local;  // by process of the run; -1: on another machine
  std::vector<pid_t> pids;          // by process of this machine
  std::vector<Descriptor> alive;    // likewise: readable when it has ended
  std::int32_t places = 0;          // of a mailbox
  Mapping memory;                   // zeros are a bell that never rang and a free place
  std::atomic<bool> over{false};

  std::int32_t count() const { return static_cast<std::int32_t>(pids.size()); }
  Bell& bell(std::int32_t of) const { return static_cast<Bell*>(memory.data)[of]; }
  std::span<Place> mailbox(std::int32_t from, std::int32_t to) const {
    auto* first = reinterpret_cast<Place*>(&bell(count()));
    const auto size = static_cast<std::size_t>(places);
    return {first + static_cast<std::size_t>(to * count() + from) * size, size};
  }
  std::size_t bytes() const {
    const auto n = static_cast<std::size_t>(count());
    return n * sizeof(Bell) + n * n * static_cast<std::size_t>(places) * sizeof(Place);
  }
  std::int32_t local_of(std::int32_t process) const {
    return local[static_cast<std::size_t>(process)];
  }
  bool gone(std::int32_t of) const {
    if (bell(of).closed) return true;
    pollfd look{.fd = alive[static_cast<std::size_t>(of)].get(), .events = POLLIN, .revents = 0};
    return poll(&look, 1, 0) > 0;
  }
  // Why to wait no longer for process `of` of this machine.
  Outcome patience(std::int32_t of, steady_clock::time_point deadline) const {
    if (over) return Outcome::Ended;
    if (gone(of)) return Outcome::Gone;
    return steady_clock::now() >= deadline ? Outcome::Late : Outcome::Done;
  }
  Place* announce(const Message& message) const;
  bool take(Message& message, bool* read) const;
  void ring(std::int32_t at) const {
    bell(at).rings.fetch_add(1);
    if (bell(at).asleep.load() > 0) wake(bell(at).rings);
  }
  Descriptor file;  // of the segment, until everybody has opened it
  Result<bool> open_segment(std::int32_t first, double timeout_s, StoreClient& store);
};

// nullptr: the mailbox is full.
Place* SharedMemoryTransport::Impl::announce(const Message& message) const {
  const std::int32_t to = local_of(message.process);
  for (Place& place : mailbox(self, to)) {
    std::uint32_t free = Place::Free;
    if (!place.state.compare_exchange_strong(free, Place::Taken, std::memory_order_acquire)) {
      continue;
    }
    place.slot = message.slot;
    place.address = reinterpret_cast<std::uint64_t>(message.data);
    place.bytes = message.bytes;
    place.since = message.since;
    place.state.store(Place::Announced, std::memory_order_release);
    ring(to);
    return &place;
  }
  return nullptr;
}

// Whether the message was announced; `read`: and could be read.
bool SharedMemoryTransport::Impl::take(Message& message, bool* read) const {
  const std::int32_t from = local_of(message.process);
  for (Place& place : mailbox(from, self)) {
    if (place.state.load(std::memory_order_acquire) != Place::Announced) continue;
    if (place.slot != message.slot) continue;
    const steady_clock::time_point begin = steady_clock::now();
    *read = place.bytes == message.bytes && read_memory(pids[static_cast<std::size_t>(from)],
                                                        place.address, message.data, message.bytes);
    message.since = std::max(message.since, place.since) + (steady_clock::now() - begin);
    place.since = message.since;
    place.state.store(Place::Read, std::memory_order_release);
    wake(place.state);
    return true;
  }
  return false;
}

SharedMemoryTransport::Moved SharedMemoryTransport::move(std::span<Message> messages,
                                                         steady_clock::time_point deadline) {
  const Impl& at = *impl_;
  std::vector<std::pair<Message*, Place*>> sent;
  std::vector<Message*> expected;
  for (Message& message : messages) {
    if (!message.send) {
      expected.push_back(&message);
      continue;
    }
    Place* place = at.announce(message);
    for (; place == nullptr; place = at.announce(message)) {
      const Outcome why = at.patience(at.local_of(message.process), deadline);
      if (why != Outcome::Done) return {why, message.process};
      std::this_thread::sleep_for(kFull);
    }
    sent.emplace_back(&message, place);
  }
  Bell& bell = at.bell(at.self);
  while (!expected.empty()) {
    const std::uint32_t rings = bell.rings.load(std::memory_order_acquire);
    const std::size_t before = expected.size();
    const Message* unread = nullptr;
    std::erase_if(expected, [&](Message* message) {
      bool read = true;
      const bool taken = at.take(*message, &read);
      if (!read) unread = message;
      return taken;
    });
    if (unread != nullptr) return {Outcome::Gone, unread->process};
    if (expected.size() < before) continue;
    const std::int32_t process = expected.front()->process;
    const Outcome why = at.patience(at.local_of(process), deadline);
    if (why != Outcome::Done) return {why, process};
    bell.asleep.fetch_add(1);
    sleep_on(bell.rings, rings);
    bell.asleep.fetch_sub(1);
  }
  for (const auto& [message, place] : sent) {
    while (true) {
      const Outcome why = at.patience(at.local_of(message->process), deadline);
      if (place->state.load(std::memory_order_acquire) == Place::Read) break;  // and then it ended
      if (why != Outcome::Done) return {why, message->process};
      sleep_on(place->state, Place::Announced);
    }
    message->since = place->since;
    place->state.store(Place::Free, std::memory_order_release);
  }
  return {};
}

void SharedMemoryTransport::end() {
  impl_->over = true;
  if (impl_->self < 0) return;
  impl_->ring(impl_->self);
}

bool SharedMemoryTransport::reaches(std::int32_t process) const {
  return impl_->self >= 0 && impl_->local_of(process) >= 0 &&
         impl_->local_of(process) != impl_->self;
}

// The first process of the machine makes the segment; the others find it among its open files.
// Then everybody reads everybody's probe. false: something of it is not allowed here.
Result<bool> SharedMemoryTransport::Impl::open_segment(std::int32_t first, double timeout_s,
                                                       StoreClient& store) {
  const std::string key = "neighbors/" + std::to_string(first) + "/segment";
  if (self == 0) {
    file = Descriptor(memfd_create("rehearse-neighbors", MFD_CLOEXEC));
    const bool made = file.get() >= 0 && ftruncate(file.get(), static_cast<off_t>(bytes())) == 0;
    if (const Result<> set = store.set(key, made ? std::to_string(file.get()) : ""); !set) {
      return set.error();
    }
    if (!made) return false;
  } else {
    const Result<std::string> number = store.get(key, timeout_s);
    if (!number) return number.error();
    if (number.value().empty()) return false;
    const std::string path = "/proc/" + std::to_string(pids[0]) + "/fd/" + number.value();
    file = Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
  }
  bool good = file.get() >= 0 && memory.map(file.get(), bytes());
  for (const pid_t pid : pids) {
    alive.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    good = good && alive.back().get() >= 0;
  }
  return good;
}

SharedMemoryTransport::SharedMemoryTransport(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SharedMemoryTransport::~SharedMemoryTransport() {
  if (impl_->self < 0) return;
  impl_->bell(impl_->self).closed = true;
  for (std::int32_t k = 0; k < impl_->count(); ++k) impl_->ring(k);
}

Result<std::unique_ptr<SharedMemoryTransport>> SharedMemoryTransport::connect(
    const Options& options, StoreClient& store) {
  const auto key = [](std::int32_t of, const char* what) {
    return "neighbors/" + std::to_string(of) + "/" + what;
  };
  // Yama's mode 1 lets only parents read a process's memory, unless it says who else may.
  if (options.willing && first_line("/proc/sys/kernel/yama/ptrace_scope") == "1") {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  }
  const Card mine{getpid(), reinterpret_cast<std::uint64_t>(&probe),
                  options.willing ? machine() : std::string()};
  if (const Result<> set = store.set(key(options.process, "card"), text(mine)); !set)
    return set.error();

  std::unique_ptr<SharedMemoryTransport> made(new SharedMemoryTransport(std::make_unique<Impl>()));
  Impl& at = *made->impl_;
  at.local.assign(static_cast<std::size_t>(options.processes), -1);
  const std::int32_t each = options.ranks / options.processes;
  at.places = std::max(kLeastPlaces, kPlacesPerPair * each * each);
  std::vector<std::int32_t> here;  // of the run, by process of this machine
  std::vector<std::uint64_t> probes;
  for (std::int32_t p = 0; p < options.processes; ++p) {
    const Result<std::string> said = store.get(key(p, "card"), options.timeout_s);
    if (!said) return said.error();
    const Card card = parse_card(said.value());
    if (mine.machine.empty() || card.machine != mine.machine) continue;
    at.local[static_cast<std::size_t>(p)] = at.count();
    here.push_back(p);
    at.pids.push_back(card.pid);
    probes.push_back(card.probe);
  }
  if (mine.machine.empty() || here.size() < 2) return made;
  at.self = at.local_of(options.process);

  const Result<bool> opened = at.open_segment(here.front(), options.timeout_s, store);
  if (!opened) return opened.error();
  bool good = opened.value();
  for (std::size_t k = 0; k < here.size(); ++k) {
    std::uint64_t read = 0;
    good = good &&
           read_memory(at.pids[k], probes[k], reinterpret_cast<std::byte*>(&read), sizeof read) &&
           read == kProbe;
  }
  // All of a machine, or none: both ends of a message must go the same way.
  if (const Result<> set = store.set(key(options.process, "reads"), good ? "yes" : "no"); !set) {
    return set.error();
  }
  for (const std::int32_t p : here) {
    const Result<std::string> reads = store.get(key(p, "reads"), options.timeout_s);
    if (!reads) return reads.error();
    good = good && reads.value() == "yes";
  }
  at.file = Descriptor();
  if (!good) at.self = -1;
  return made;
}

}  // namespace rehearse::exec
