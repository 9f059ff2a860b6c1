// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/device_arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <system_error>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace maestro::fake_cuda {

namespace {

std::size_t page_up(std::size_t offset) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (offset + page - 1) / page * page;
}

std::size_t page_down(std::size_t offset) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return offset / page * page;
}

std::system_error failed(const char* what) {
  return {errno, std::generic_category(), what};
}

}  // namespace

DeviceArena::DeviceArena(std::size_t bytes, std::size_t lap) : size_(page_up(bytes)), lap_(lap) {
  file_ = memfd_create("memory of devices", MFD_CLOEXEC);
  if (file_ < 0) throw failed("memfd_create");
  if (ftruncate(file_, static_cast<off_t>(size_)) != 0) throw failed("ftruncate");
  void* mapped = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (mapped == MAP_FAILED) throw failed("mmap");
  base_ = static_cast<std::byte*>(mapped);
  gaps_.emplace(0, size_);
}

DeviceArena::~DeviceArena() {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(base_, used_);  // for the next user of these addresses
#endif
  munmap(base_, size_);
  close(file_);
}

std::byte* DeviceArena::take(std::size_t bytes) {
  if (next_ >= lap_) next_ = 0;
  auto gap = gaps_.upper_bound(next_);
  if (gap != gaps_.begin() && std::prev(gap)->second > next_) {  // the search begins inside a gap
    --gap;
    if (gap->second - next_ >= bytes) return take_of(gap, next_, bytes);
    ++gap;
  }
  for (std::size_t left = gaps_.size(); left > 0; --left) {
    if (gap == gaps_.end()) gap = gaps_.begin();
    if (gap->second - gap->first >= bytes) return take_of(gap, gap->first, bytes);
    ++gap;
  }
  return nullptr;
}

std::byte* DeviceArena::take_of(Gaps::iterator gap, std::size_t begin, std::size_t bytes) {
  const auto [first, last] = *gap;
  gaps_.erase(gap);
  if (first < begin) gaps_.emplace(first, begin);
  next_ = begin + bytes;
  if (next_ < last) gaps_.emplace(next_, last);
  used_ = std::max(used_, next_);
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(base_ + begin, bytes);
#endif
  return base_ + begin;
}

void DeviceArena::give_back(std::byte* block, std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(block, bytes);  // DA-2
#endif
  const std::size_t begin = offset_of(block);
  const std::size_t end = begin + bytes;
  auto gap = gaps_.emplace(begin, end).first;
  if (const auto after = std::next(gap); after != gaps_.end() && after->first == end) {
    gap->second = after->second;
    gaps_.erase(after);
  }
  if (gap != gaps_.begin() && std::prev(gap)->second == begin) {
    const auto before = std::prev(gap);
    before->second = gap->second;
    gaps_.erase(gap);
    gap = before;
  }
  // Pages of the block that hold nothing else.
  const std::size_t first = page_up(std::max(gap->first, page_down(begin)));
  const std::size_t last = page_down(std::min(gap->second, page_up(end)));
  if (first < last) static_cast<void>(madvise(base_ + first, last - first, MADV_REMOVE));
}

void DeviceArena::clear(std::byte* memory, std::size_t bytes) {
  const std::size_t begin = offset_of(memory);
  const std::size_t end = begin + bytes;
  const std::size_t first = std::min(page_up(begin), end);
  const std::size_t last = std::max(page_down(end), first);
  std::memset(memory, 0, first - begin);
  if (first < last && madvise(base_ + first, last - first, MADV_REMOVE) != 0) throw failed("madvise");
  std::memset(base_ + last, 0, end - last);
}

}  // namespace maestro::fake_cuda
