-- dialect: sqlstream
-- Orders, prices and the desks that trade: see README.md beside this file.

CREATE STREAM orders (order_id INTEGER NOT NULL, ticker VARCHAR(10), quantity INTEGER, placed TIMESTAMP)
  OPTIONS (ROWTIME 'placed');
CREATE STREAM prices (ticker VARCHAR(10), price DECIMAL(10, 2), quoted TIMESTAMP)
  OPTIONS (ROWTIME 'quoted');
CREATE TABLE desks (ticker VARCHAR(10) NOT NULL PRIMARY KEY, desk VARCHAR(20), most INTEGER);

-- 1. Every order with each price of the minute before it, or of the ten seconds after it.
CREATE VIEW priced AS
  SELECT STREAM ROWTIME, o.order_id, o.ticker, o.quantity, p.price
  FROM orders OVER (RANGE INTERVAL '10' SECOND PRECEDING) AS o
  JOIN prices OVER (RANGE INTERVAL '1' MINUTE PRECEDING) AS p USING (ticker);

-- 2. Orders for which no price came, told when their window has ended.
SET 'braid.outer.emission' = 'expiry';
CREATE VIEW unpriced AS
  SELECT STREAM o.order_id, o.ticker, o.quantity, o.ROWTIME AS placed_at
  FROM orders OVER (RANGE INTERVAL '10' SECOND PRECEDING) AS o
  LEFT JOIN prices OVER (RANGE INTERVAL '1' MINUTE PRECEDING) AS p USING (ticker)
  WHERE p.price IS NULL;
UNSET 'braid.outer.emission';

-- 3. Orders above what the desk may trade: a table, read once when the query starts.
CREATE VIEW too_large AS
  SELECT STREAM o.order_id, d.desk, o.quantity, d.most
  FROM orders AS o JOIN desks AS d ON o.ticker = d.ticker AND o.quantity > d.most;

-- 4. Every five minutes: each desk's orders, and the desks without any.
CREATE VIEW desk_report AS
  SELECT STREAM d.desk, d.ticker, o.order_id
  FROM orders OVER (ORDER BY STEP(ROWTIME BY INTERVAL '5' MINUTE) RANGE CURRENT ROW) AS o
  RIGHT OUTER JOIN desks AS d USING (ticker);
