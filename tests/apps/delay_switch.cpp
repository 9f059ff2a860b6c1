// SPDX-License-Identifier: Apache-2.0
// A network switch for tests on machines whose kernel cannot delay packets: joins TAP devices in network namespaces and
// forwards every frame a fixed time after its arrival.
//
// usage: delay_switch MILLISECONDS NAMESPACE...
//
// Makes a device "tap0" in every namespace, prints "ready" and works until its standard input ends. Frames keep their
// virtual network header, so the kernel's segmentation offload works across the switch.
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Address = std::array<unsigned char, 6>;

constexpr std::size_t header_bytes = 10;  // virtio_net_hdr
constexpr std::size_t largest_frame = 70000;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "delay_switch: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

int open_tap(const std::string& name_space) {
  const int target = open(("/var/run/netns/" + name_space).c_str(), O_RDONLY | O_CLOEXEC);
  if (target < 0) fail("network namespace " + name_space);
  if (setns(target, CLONE_NEWNET) != 0) fail("setns");
  close(target);
  const int tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (tap < 0) fail("/dev/net/tun");
  ifreq request{};
  std::strncpy(request.ifr_name, "tap0", IFNAMSIZ - 1);
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (ioctl(tap, TUNSETIFF, &request) != 0) fail("TUNSETIFF");
  if (ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) fail("TUNSETOFFLOAD");
  return tap;
}

struct Frame {
  Clock::time_point due;
  std::size_t from;
  std::vector<unsigned char> bytes;
};

class Switch {
 public:
  Switch(Clock::duration delay, std::vector<int> taps) : delay_(delay), taps_(std::move(taps)) {}

  void run() {
    while (true) {
      std::vector<pollfd> waited{{STDIN_FILENO, POLLIN, 0}};
      for (const int tap : taps_) waited.push_back({tap, POLLIN, 0});
      const timespec patience = until_next();
      if (ppoll(waited.data(), waited.size(), frames_.empty() ? nullptr : &patience, nullptr) < 0) fail("ppoll");
      if (waited[0].revents != 0) return;
      for (std::size_t at = 0; at < taps_.size(); ++at) {
        if (waited[at + 1].revents != 0) take(at);
      }
      hand_on();
    }
  }

 private:
  [[nodiscard]] timespec until_next() const {
    if (frames_.empty()) return {};
    const auto left = std::max(frames_.front().due - Clock::now(), Clock::duration::zero());
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    return {nanoseconds / 1000000000, nanoseconds % 1000000000};
  }

  void take(std::size_t from) {
    ssize_t length = 0;
    while ((length = read(taps_[from], buffer_.data(), buffer_.size())) > 0) {
      frames_.push_back({Clock::now() + delay_, from, {buffer_.begin(), buffer_.begin() + length}});
      if (static_cast<std::size_t>(length) >= header_bytes + 12) home_of_[address(frames_.back(), 6)] = from;
    }
  }

  static Address address(const Frame& frame, std::size_t offset) {
    Address result;
    std::memcpy(result.data(), frame.bytes.data() + header_bytes + offset, result.size());
    return result;
  }

  void hand_on() {
    const auto now = Clock::now();
    for (; !frames_.empty() && frames_.front().due <= now; frames_.pop_front()) {
      const Frame& frame = frames_.front();
      if (frame.bytes.size() < header_bytes + 12) continue;
      const auto home = home_of_.find(address(frame, 0));
      for (std::size_t at = 0; at < taps_.size(); ++at) {
        if (at == frame.from || (home != home_of_.end() && home->second != at)) continue;
        // If a device is full or closed, the frame is lost, as in a real switch.
        (void)!write(taps_[at], frame.bytes.data(), frame.bytes.size());
      }
    }
  }

  Clock::duration delay_;
  std::vector<int> taps_;
  std::deque<Frame> frames_;
  std::map<Address, std::size_t> home_of_;
  std::array<unsigned char, largest_frame> buffer_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: delay_switch MILLISECONDS NAMESPACE NAMESPACE...\n");
    return 2;
  }
  std::vector<int> taps;
  for (int at = 2; at < argc; ++at) taps.push_back(open_tap(argv[at]));
  std::puts("ready");
  std::fflush(stdout);
  static Switch device(std::chrono::milliseconds(std::atoi(argv[1])), std::move(taps));
  device.run();
  return 0;
}
