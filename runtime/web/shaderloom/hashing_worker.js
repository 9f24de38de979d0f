// A worker that hashes: the bytes come with the port for their digest.

/** @param {MessageEvent<Uint8Array<ArrayBuffer>>} event */
globalThis.onmessage = async ({ data, ports: [port] }) => port.postMessage(await crypto.subtle.digest("SHA-256", data));
