#include "comm/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace comm {
namespace {

// Longer ones are no messages of ours. What is sent without waiting fits well into the smallest
// default send buffer (16 KiB).
constexpr uint32_t kMaxText = 8192;
constexpr size_t kHeader = sizeof(uint32_t) + 1;

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

absl::StatusOr<Addresses> Resolve(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = host.empty() ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), absl::StrCat(port).c_str(),
                                &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat(host, ": ", gai_strerror(error)));
  }
  return Addresses(found, freeaddrinfo);
}

// Nobody waits for long: not for a host that does not answer (the kernel's patience is 2 minutes),
// nor for a peer that is stopped and whose buffer is full; and small messages go at once.
bool Prepare(const Socket& socket) {
  const timeval patience = {.tv_sec = 2, .tv_usec = 0};
  const int yes = 1;
  return setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0 &&
         setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) == 0;
}

// Waits until `fd` can be read, or the deadline.
bool WaitReadable(int fd, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd entry = {.fd = fd, .events = POLLIN, .revents = 0};
    const int ready =
        poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000)));
    if (ready > 0) return true;
    if (ready == 0 && left.count() <= 60'000) return false;
    CHECK(ready == 0 || errno == EINTR) << "poll: " << std::strerror(errno);
  }
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

bool Link::Send(const Message& message) {
  if (!is_open()) return false;
  const std::string text = message.text.substr(0, kMaxText);
  const uint32_t length = static_cast<uint32_t>(text.size());
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += message.kind;
  bytes += text;
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = send(socket_.fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      // Half of a message may have gone: nothing that follows would be understood.
      shutdown(socket_.fd(), SHUT_RDWR);
      return false;
    }
    sent += static_cast<size_t>(n);
  }
  return true;
}

std::optional<Message> Link::TakeMessage() {
  if (received_.size() < kHeader) return std::nullopt;
  uint32_t length = 0;
  std::memcpy(&length, received_.data(), sizeof(length));
  if (length > kMaxText) {  // not one of us
    Close();
    return std::nullopt;
  }
  if (received_.size() < kHeader + length) return std::nullopt;
  Message message{.kind = received_[sizeof(length)], .text = received_.substr(kHeader, length)};
  received_.erase(0, kHeader + length);
  return message;
}

absl::StatusOr<std::optional<Message>> Link::Receive(Deadline deadline) {
  while (true) {
    if (std::optional<Message> message = TakeMessage()) return message;
    if (!is_open()) return absl::UnavailableError("the connection is closed");
    if (!WaitReadable(socket_.fd(), deadline)) return std::optional<Message>();
    char buffer[4096];
    const ssize_t n = recv(socket_.fd(), buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      Close();
    } else {
      received_.append(buffer, static_cast<size_t>(n));
    }
  }
}

absl::StatusOr<Socket> Listen(const std::string& host, int port) {
  ABSL_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(host, port));
  std::string why = "no address";
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    Socket socket(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
    const int yes = 1;  // the port of a job that has just ended may be used again
    if (socket.is_open() &&
        setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
        bind(socket.fd(), a->ai_addr, a->ai_addrlen) == 0 && listen(socket.fd(), 4096) == 0) {
      return socket;
    }
    why = std::strerror(errno);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("cannot listen at port ", port, ": ", why, "; the port has to be free"));
}

int PortOf(const Socket& listener) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  CHECK_EQ(getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

std::optional<Link> Accept(const Socket& listener, Deadline deadline) {
  if (!WaitReadable(listener.fd(), deadline)) return std::nullopt;
  Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  // Not open: the caller left before we answered.
  if (!socket.is_open() || !Prepare(socket)) return std::nullopt;
  return Link(std::move(socket));
}

absl::StatusOr<Link> Connect(const std::string& host, int port) {
  ABSL_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(host, port));
  std::string why = "no address";
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    Socket socket(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
    if (socket.is_open() && Prepare(socket) &&
        connect(socket.fd(), a->ai_addr, a->ai_addrlen) == 0) {
      return Link(std::move(socket));
    }
    why = std::strerror(errno);
  }
  return absl::UnavailableError(absl::StrCat(host, ":", port, ": ", why));
}

}  // namespace comm
