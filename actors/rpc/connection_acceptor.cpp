// SPDX-License-Identifier: Apache-2.0
#include "actors/rpc/connection_acceptor.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "actors/rpc/rpc_socket.hpp"
#include "actors/rpc/socket_address.hpp"

namespace maestro {

namespace {

FileDescriptor new_event() {
  FileDescriptor made(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (made) return made;
  throw JobError("cannot make an event descriptor: " + std::generic_category().message(errno), ErrorCode::unavailable);
}

}  // namespace

struct ConnectionAcceptor::State {
  State(AcceptorOptions given, Serve server)
      : options(std::move(given)), serve_client(std::move(server)), address(parse_socket_address(options.address)) {
    if (options.keys) tls.emplace(*options.keys, TlsContext::Side::server);
    wake = new_event();
    listener = listen_at(address);
    try {
      acceptor = std::thread([this] { accept_clients(); });
    } catch (const std::system_error& failure) {
      close_listener();
      throw JobError("cannot start a thread for connections at " + address.text() + ": " + failure.what(),
                     ErrorCode::unavailable);
    }
  }

  class Client;

  void accept_clients();
  void admit(FileDescriptor socket);
  void begin(FileDescriptor socket, const std::string& peer);
  void serve(Client& client);
  void end_oldest_stranger();
  [[nodiscard]] std::size_t count(bool admitted) const;
  [[nodiscard]] std::size_t held() const;
  void forget_gone(std::unique_lock<std::mutex>& lock);
  void wait_for_descriptors() const;
  void refuse(const std::string& peer, const std::string& reason) const {
    if (options.refused) options.refused(peer, reason);
  }
  void close_listener() {
    listener.reset();
    if (address.local()) ::unlink(address.path.c_str());
  }
  void stop();

  AcceptorOptions options;
  Serve serve_client;
  SocketAddress address;
  std::optional<TlsContext> tls;
  FileDescriptor wake;
  FileDescriptor listener;

  std::mutex mutex;
  std::condition_variable left;  // a client has ended, or stop() was called
  bool stopping = false;
  std::list<Client> clients;  // by arrival
  std::thread acceptor;       // last: uses all above
};

/// State of a slot; the acceptor's lock guards all members that change except the stream.
class ConnectionAcceptor::State::Client final : public Visitor {
 public:
  Client(State& acceptor, std::string peer, std::shared_ptr<RpcSocket> stream)
      : acceptor_(acceptor), name_(std::move(peer)), stream_(std::move(stream)) {}

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const std::shared_ptr<RpcSocket>& stream() const override { return stream_; }
  void admit() override {
    const std::lock_guard lock(acceptor_.mutex);
    if (!std::exchange(admitted, true)) stream_->set_patience(acceptor_.options.patience);
  }
  [[nodiscard]] PeerSocket release() override {
    const std::lock_guard lock(acceptor_.mutex);  // against shut_down()
    return stream_->release();
  }

  std::thread thread;
  bool admitted = false;
  bool ended = false;  ///< another client has taken the slot
  bool gone = false;   ///< the thread is about to end

 private:
  State& acceptor_;
  std::string name_;
  std::shared_ptr<RpcSocket> stream_;  // shared with a service's protocol, as Thrift requires
};

void ConnectionAcceptor::State::accept_clients() {
  while (true) {
    pollfd waited[2] = {{listener.get(), POLLIN, 0}, {wake.get(), POLLIN, 0}};
    if (::poll(waited, 2, -1) < 0 && errno != EINTR) return;
    if (waited[1].revents != 0) return;
    FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      admit(std::move(socket));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      wait_for_descriptors();
    }
  }
}

/// Waits before the next try if no descriptor is free: the listener stays readable, and retrying at once would spin.
void ConnectionAcceptor::State::wait_for_descriptors() const {
  pollfd stopped{wake.get(), POLLIN, 0};
  ::poll(&stopped, 1, 100);
}

std::size_t ConnectionAcceptor::State::count(bool admitted) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      clients, [&](const Client& client) { return client.admitted == admitted && !client.ended && !client.gone; }));
}

/// Returns the number of clients with a descriptor.
std::size_t ConnectionAcceptor::State::held() const {
  return static_cast<std::size_t>(std::ranges::count(clients, false, &Client::gone));
}

void ConnectionAcceptor::State::admit(FileDescriptor socket) {
  const std::string peer = peer_name(socket.get());
  std::unique_lock lock(mutex);
  forget_gone(lock);
  if (stopping) return;
  if (count(true) >= options.most_clients) {
    lock.unlock();
    return refuse(peer, "there are " + std::to_string(options.most_clients) + " clients already");
  }
  if (count(false) >= options.most_strangers) end_oldest_stranger();
  // Clients without a slot end soon; until then they hold a descriptor and a thread each.
  const std::size_t most = options.most_clients + options.most_strangers;
  left.wait_for(lock, options.stranger_patience, [&] { return stopping || held() < most; });
  if (stopping) return;
  try {
    begin(std::move(socket), peer);
  } catch (const std::exception& failure) {  // no memory or thread: the next client may succeed
    lock.unlock();
    options.starved ? options.starved(peer, failure.what()) : refuse(peer, failure.what());
  }
}

/// Call under the lock.
void ConnectionAcceptor::State::end_oldest_stranger() {
  const auto oldest = std::ranges::find_if(
      clients, [](const Client& client) { return !client.admitted && !client.ended && !client.gone; });
  oldest->ended = true;
  oldest->stream()->shut_down();
}

/// Call under the lock.
void ConnectionAcceptor::State::begin(FileDescriptor socket, const std::string& peer) {
  if (!address.local()) {
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  TlsSession session = tls ? tls->open(socket.get()) : nullptr;
  const auto patience = std::min(options.stranger_patience, options.patience);
  Client& client =
      clients.emplace_back(*this, peer, std::make_shared<RpcSocket>(std::move(socket), std::move(session), patience));
  try {
    client.thread = std::thread([this, &client] { serve(client); });
  } catch (...) {
    clients.pop_back();
    throw;
  }
}

void ConnectionAcceptor::State::serve(Client& client) {
  RpcSocket& stream = *client.stream();
  try {
    stream.handshake();
    serve_client(client);
  } catch (const std::exception& failure) {
    const bool ended = [&] {
      const std::lock_guard lock(mutex);
      return client.ended || stopping;
    }();
    if (!ended) refuse(client.name(), failure.what());
    stream.hear_out();
  }
  const std::lock_guard lock(mutex);  // against shut_down()
  stream.close();
  const PeerSocket closed = stream.release();
  client.gone = true;
  left.notify_one();
}

void ConnectionAcceptor::State::forget_gone(std::unique_lock<std::mutex>& /*held*/) {
  for (auto at = clients.begin(); at != clients.end();) {
    if (at->gone) at->thread.join();  // the thread holds no lock any more and is about to end
    at = at->gone ? clients.erase(at) : std::next(at);
  }
}

void ConnectionAcceptor::State::stop() {
  {
    const std::lock_guard lock(mutex);
    if (stopping) return;
    stopping = true;
  }
  left.notify_one();
  ::eventfd_write(wake.get(), 1);
  acceptor.join();
  {
    const std::lock_guard lock(mutex);
    for (const Client& client : clients) client.stream()->shut_down();
  }
  for (Client& client : clients) client.thread.join();  // no other thread uses the list any more
  clients.clear();
  close_listener();
}

ConnectionAcceptor::ConnectionAcceptor(AcceptorOptions options, Serve serve)
    : state_(std::make_unique<State>(std::move(options), std::move(serve))) {}

ConnectionAcceptor::~ConnectionAcceptor() {
  stop();
}

std::string ConnectionAcceptor::address() const {
  return state_->address.text();
}

void ConnectionAcceptor::stop() {
  state_->stop();
}

}  // namespace maestro
