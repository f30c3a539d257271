//! Networks, such as those of trusted proxies.

use std::{fmt, net::IpAddr, str::FromStr};

use eigenveil_shared::Error;
use ipnet::IpNet;

/// A network in CIDR notation, such as `10.0.0.0/8`, or one address.
///
/// ```
/// use eigenveil_server::Network;
/// let inside: Network = "10.0.0.0/8".parse()?;
/// assert!(inside.contains("10.1.2.3".parse()?) && !inside.contains("11.1.2.3".parse()?));
/// // An IPv4-mapped IPv6 address is the same address.
/// assert!(inside.contains("::ffff:10.1.2.3".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    /// Whether the address lies in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.parse()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
            .map(Self)
            .map_err(|_| {
                Error::invalid_config(format!(
                    "{text:?} is not a network; write it like 10.0.0.0/8, fd00::/8 or 10.1.2.3"
                ))
            })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
